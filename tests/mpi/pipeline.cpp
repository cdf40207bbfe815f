// SPDX-License-Identifier: Apache-2.0
// ranks: 2 4 8
/// Pipelines of every schedule train the same model as one rank: gradients by section, losses and norms of steps, the loss
/// of evaluation, and checkpoints that any layout reads.
#include <doctest/doctest.h>

#include <cmath>
#include <map>
#include <optional>

#include "llmtrain/checkpoint/loader.hpp"
#include "llmtrain/checkpoint/saver.hpp"
#include "llmtrain/driver/dry_run.hpp"
#include "llmtrain/driver/state.hpp"
#include "llmtrain/driver/step.hpp"
#include "support/gpt.hpp"
#include "support/random_batch.hpp"
#include "support/scratch_folder.hpp"

using namespace llmtrain;

namespace {

ModelConfig small_llama(std::int64_t layers) {
  ModelConfig config;
  config.layers = layers;
  config.hidden = 32;
  config.heads = 4;
  config.kv_heads = 2;
  config.head_dim = 8;
  config.ffn = 48;
  config.seq_len = 12;
  config.vocab = 61;
  config.vocab_multiple = 16;
  config.init_std = 0.1;
  return config;
}

ModelConfig small_gpt(std::int64_t layers) {
  ModelConfig config = as_gpt(small_llama(layers));
  config.dropout = 0.1;
  return config;
}

Deck small_deck(const ModelConfig& model) {
  Deck deck;
  deck.model = model;
  deck.precision.compute = Compute::fp64;
  deck.schedule.micro_batch = 1;
  deck.schedule.global_batch = 16;
  deck.data.eval_batches = 2;
  return deck;
}

/// A run over the ranks of `world`; sample numbers do not depend on the layout.
class Run {
 public:
  Run(const Deck& small, const MpiComm& world)
      : deck(small),
        topology(deck, world.size()),
        measured(measure(deck, topology, world.rank(), DeviceKind::cpu)),
        parts(deck, {topology, world.rank(), world}, *device, measured.scratch_bytes),
        load([this, rank = world.rank()](std::int64_t m, const Batch& batch) {
          const int data = topology.size(data_axes), mine = topology.index(data_axes, rank);
          random_batch(batch, deck.model.vocab, (m * data + mine) * deck.schedule.micro_batch);
        }) {
    parts.params.initialise(parts.kernels, parts.stream, 11);
    warm_up(parts);  // as a GPU does; what follows must not be touched by it
  }
  StepTotals totals() const {
    const double* t = parts.totals.ptr<double>();
    return {t[0], t[1], t[2], t[3]};
  }
  StepTotals gradients() {
    run_gradients(parts, load, timers);
    return totals();
  }
  StepTotals step(std::int64_t n) {
    run_step(parts, {.step = n, .lr = 1e-3, .beta1 = 0.9, .beta2 = 0.95, .clip = 1}, load, timers);
    return totals();
  }
  StepTotals evaluate() {
    run_evaluation(parts, 2 * parts.micro_batches(), load);
    return totals();
  }

  const Deck deck;
  const std::unique_ptr<Device> device = make_cpu_device(1);
  const Topology topology;
  const Measured measured;
  Timers timers;
  Parts parts;
  const LoadBatch load;
};

/// By section name: this rank's elements of the section, by place in the true global array.
std::map<std::string, std::map<std::int64_t, double>> sections_of(Run& run, Tensor (*flat)(Parts&, int)) {
  std::map<std::string, std::map<std::int64_t, double>> out;
  for (int i = 0; i < run.parts.shape.storages(); ++i) {
    const auto at = static_cast<std::size_t>(i);
    const Tensor values = flat(run.parts, i);
    const std::int64_t begin = run.parts.shape.updated_begin(i);
    for (const SectionRange& range : section_ranges(run.parts.shape.layouts[at], begin, begin + values.numel())) {
      auto& section = out[run.parts.table.storages[at].sections[static_cast<std::size_t>(range.section)].name];
      for (std::int64_t k = range.flat_begin; k < range.flat_end; ++k) {
        section[k] = values.ptr<double>()[range.offset + k - range.flat_begin];
      }
    }
  }
  return out;
}

Tensor gradient_of(Parts& parts, int storage) { return parts.grads.updated(storage); }
Tensor master_of(Parts& parts, int storage) { return parts.params.master(storage); }

/// The largest difference of gradients in units of the bound for fp64.
double worst(Run& run, Run& one, double squares) {
  const auto mine = sections_of(run, gradient_of), all = sections_of(one, gradient_of);
  const double parameters = static_cast<double>(one.parts.table.parameters());
  double worst = 0;
  for (const auto& [name, values] : mine) {
    double difference = 0, reference = 0;
    for (const auto& [k, value] : values) {
      const double expected = all.at(name).at(k);
      difference += (value - expected) * (value - expected);
      reference += expected * expected;
    }
    const double share = static_cast<double>(values.size()) / parameters;
    const double bound = 1e-13 * (std::sqrt(reference) + 1e-3 * std::sqrt(squares * share));
    worst = std::max(worst, std::sqrt(difference) / bound);
  }
  return worst;
}

/// Every pipeline that the ranks can be, with the schedules that it can have.
std::vector<Deck> pipelines(const ModelConfig& model, int ranks) {
  std::vector<Deck> decks;
  for (int stages = 2; stages <= ranks; ++stages) {
    if (ranks % stages != 0) continue;
    for (const int zero : {0, 1}) {
      Deck deck = small_deck(model);
      deck.parallel.pipeline = stages;
      deck.parallel.zero = zero;
      for (const ScheduleKind kind : {ScheduleKind::gpipe, ScheduleKind::one_f_one_b, ScheduleKind::interleaved}) {
        deck.schedule.kind = kind;
        for (const int chunks : {1, 2, 3}) {
          if (stages * chunks > model.layers || (chunks > 1) != (kind == ScheduleKind::interleaved)) continue;
          deck.schedule.chunks = chunks;
          const std::int64_t micro_batches = deck.schedule.global_batch / (ranks / stages);
          if (kind == ScheduleKind::interleaved && micro_batches < stages) continue;
          decks.push_back(deck);
        }
      }
    }
  }
  return decks;
}

bool near(double a, double b) { return std::abs(a - b) <= 1e-12 * std::abs(b); }

MpiComm alone() {
  const MpiComm world = MpiComm::world();
  return world.split(world.rank(), 0);
}

}  // namespace

TEST_CASE("gradients of every schedule are those of one rank") {
  const MpiComm world = MpiComm::world(), self = alone();
  for (const ModelConfig& model : {small_llama(9), small_gpt(8)}) {
    Run one(small_deck(model), self);
    const StepTotals expected = one.gradients();
    for (const Deck& deck : pipelines(model, world.size())) {
      CAPTURE(deck.parallel.pipeline);
      CAPTURE(deck.parallel.zero);
      CAPTURE(deck.schedule.chunks);
      CAPTURE(static_cast<int>(deck.schedule.kind));
      Run run(deck, world);
      const StepTotals totals = run.gradients();
      CHECK(near(totals.loss, expected.loss));
      CHECK(totals.tokens == expected.tokens);
      CHECK(near(totals.squares, expected.squares));
      CHECK(worst(run, one, expected.squares) <= 1);
    }
  }
}

TEST_CASE("uneven cuts, counted ends and recompute train the same model") {
  const MpiComm world = MpiComm::world(), self = alone();
  const int stages = world.size();
  const ModelConfig model = small_gpt(9);
  Run one(small_deck(model), self);
  const StepTotals expected = one.gradients();
  Deck deck = small_deck(model);
  deck.parallel.pipeline = stages;
  const auto check = [&] {
    Run run(deck, world);
    CHECK(near(run.gradients().squares, expected.squares));
    CHECK(worst(run, one, expected.squares) <= 1);
  };
  SUBCASE("layers as listed") {
    deck.parallel.stage_layers.assign(static_cast<std::size_t>(stages), 1);
    deck.parallel.stage_layers.back() = 9 - (stages - 1);
    check();
  }
  SUBCASE("embedding and head count, fewer micro-batches than stages") {
    deck.parallel.count_embedding = deck.parallel.count_head = true;
    deck.schedule.micro_batch = 16 / std::max(stages / 2, 1);
    check();
  }
  SUBCASE("stages of an embedding or a head alone, blocks computed again") {
    deck.schedule.recompute = Recompute::block;
    deck.model.layers = std::max(stages - 2, 1);
    if (stages == 2) deck.parallel.count_head = true;
    if (stages > 2) deck.parallel.count_embedding = deck.parallel.count_head = true;
    Deck whole = small_deck(deck.model);
    Run reference(whole, self), run(deck, world);
    const StepTotals totals = reference.gradients();
    CHECK(near(run.gradients().squares, totals.squares));
    CHECK(worst(run, reference, totals.squares) <= 1);
    if (run.parts.pipeline.stage == stages - 1) CHECK(run.parts.pieces[0].piece.layers == 0);
  }
}

TEST_CASE("steps and evaluation of a pipeline follow one rank, and its checkpoint is anybody's") {
  const MpiComm world = MpiComm::world(), self = alone();
  for (const ModelConfig& model : {small_llama(8), small_gpt(8)}) {
    for (const int zero : {0, 1}) {
      CAPTURE(zero);
      Deck deck = small_deck(model);
      deck.parallel.zero = zero;
      deck.parallel.pipeline = world.size() == 8 ? 4 : 2;
      if (world.size() < 8) deck.schedule.kind = ScheduleKind::interleaved;
      if (world.size() < 8) deck.schedule.chunks = 2;
      Run one(small_deck(model), self), run(deck, world);
      for (std::int64_t n = 1; n <= 3; ++n) {
        const StepTotals expected = one.step(n), totals = run.step(n);
        CHECK(std::abs(totals.loss - expected.loss) <= 1e-9 * expected.loss);
        CHECK(std::abs(totals.squares - expected.squares) <= 1e-9 * expected.squares);
        const double loss = run.evaluate().loss;
        CHECK(std::abs(loss - one.evaluate().loss) <= 1e-9 * loss);
      }
      const auto all = sections_of(one, master_of);
      for (const auto& [name, values] : sections_of(run, master_of)) {
        for (const auto& [k, value] : values) REQUIRE(std::abs(value - all.at(name).at(k)) <= 1e-9);
      }
      // One rank reads what the pipeline wrote: the same bits, and it goes on.
      std::optional<ScratchFolder> own;
      if (world.rank() == 0) own.emplace();
      const std::string folder = world.broadcast(own ? own->path() : std::string(), 0);
      CheckpointState state;
      state.step = 3;
      state.deck = "{}";
      state.run_id = "pipeline";
      StateMirror mirror(run.parts, StatePart::owned);
      mirror.download();
      save_checkpoint(world, folder, state, mirror.pieces(), {});
      Run next(small_deck(model), self);
      StateMirror loaded(next.parts, StatePart::updated);
      load_checkpoint(self, open_checkpoint(self, folder), loaded.pieces());
      loaded.upload();
      const auto read = sections_of(next, master_of);
      std::int64_t wrong = 0;
      for (const auto& [name, values] : sections_of(run, master_of)) {
        for (const auto& [k, value] : values) wrong += value != read.at(name).at(k);
      }
      CHECK(wrong == 0);
      // A pipeline of another shape reads it too.
      deck.parallel.pipeline = world.size();
      deck.schedule.kind = ScheduleKind::gpipe;
      deck.schedule.chunks = 1;
      Run other(deck, world);
      StateMirror again(other.parts, StatePart::updated);
      load_checkpoint(world, open_checkpoint(world, folder), again.pieces());
      again.upload();
      const StepTotals a = next.step(4), b = other.step(4), c = run.step(4);
      CHECK(std::abs(a.loss - c.loss) <= 1e-9 * c.loss);
      CHECK(std::abs(b.loss - c.loss) <= 1e-9 * c.loss);
      world.barrier();
    }
  }
}

TEST_CASE("what a stage sends is one tensor a micro-batch and boundary, and the plan is what is allocated") {
  const MpiComm world = MpiComm::world();
  Deck deck = small_deck(small_llama(8));
  deck.parallel.pipeline = world.size();
  Run run(deck, world);
  const std::int64_t stream = 12 * 32 * 8;  // bytes of [tokens, hidden]
  using Key = std::pair<std::string, std::string>;
  const auto& collectives = run.measured.trace.collectives();
  const int stage = run.parts.pipeline.stage;
  const auto calls = [&](const char* group, const char* op) {
    const auto found = collectives.find(Key(group, op));
    if (found == collectives.end()) return std::int64_t{0};
    CHECK(found->second.bytes == found->second.calls * stream);
    return found->second.calls;
  };
  const bool first = stage == 0, last = stage == world.size() - 1;
  CHECK(calls("pp-forward", "receive") == (first ? 0 : 16));
  CHECK(calls("pp-forward", "send") == (last ? 0 : 16));
  CHECK(calls("pp-backward", "receive") == (last ? 0 : 16));
  CHECK(calls("pp-backward", "send") == (first ? 0 : 16));
  for (int i = 0; i < segment_count; ++i) {
    CHECK(run.parts.plan.bytes(static_cast<Segment>(i)) == run.measured.plan.bytes(static_cast<Segment>(i)));
  }
}
