// SPDX-License-Identifier: Apache-2.0
// ranks: 2 4 8
/// Tensor and sequence parallelism on whole tiny models: every layout of the ranks trains what one rank trains, and moves
/// what it should.
#include <doctest/doctest.h>

#include <cmath>

#include "llmtrain/driver/step.hpp"
#include "support/gather.hpp"
#include "support/random_batch.hpp"

using namespace llmtrain;

namespace {

ModelConfig tiny_llama() {
  ModelConfig config;
  config.layers = 2;
  config.hidden = 32;
  config.heads = 8;
  config.kv_heads = 2;
  config.head_dim = 4;
  config.ffn = 48;
  config.seq_len = 12;
  config.vocab = 257;
  config.vocab_multiple = 16;
  config.init_std = 0.3;
  return config;
}

/// With every option of the family.
ModelConfig full_llama() {
  ModelConfig config = tiny_llama();
  config.qkv_bias = true;
  config.qk_norm = true;
  config.kv_heads = 1;
  config.tied = true;
  config.dropout = 0.1;
  return config;
}

ModelConfig tiny_gpt() {
  ModelConfig config = tiny_llama();
  config.family = Family::gpt;
  config.tied = true;
  config.kv_heads = config.heads;
  config.qkv_bias = true;
  config.activation = Activation::gelu_tanh;
  config.positions = Positions::learned;
  config.dropout = 0.1;
  return config;
}

struct NamedModel {
  const char* name;
  ModelConfig config;
};
const std::vector<NamedModel> models{
    {"llama", tiny_llama()}, {"llama, every option", full_llama()}, {"gpt, dropout", tiny_gpt()}};

constexpr std::int64_t global_batch = 16;

Deck tiny_deck(const ModelConfig& model, Compute compute = Compute::fp64) {
  Deck deck;
  deck.model = model;
  deck.schedule.micro_batch = 2;
  deck.schedule.global_batch = global_batch;
  deck.precision.compute = compute;
  return deck;
}

Deck split_deck(const ModelConfig& model, int tensor, bool sequence, Compute compute = Compute::fp64) {
  Deck deck = tiny_deck(model, compute);
  deck.parallel.tensor = tensor;
  deck.parallel.sequence = sequence;
  return deck;
}

/// A deck's layout on `ranks` of the world: all of them, or this one alone.
class Run {
 public:
  Run(const Deck& tiny, const MpiComm& world)
      : deck(tiny),
        place{Topology(deck, world ? world.size() : 1), world ? world.rank() : 0, world},
        parts(deck, place, *device, measure(deck, place.topology, place.rank, DeviceKind::cpu).scratch_bytes) {
    parts.params.initialise(parts.kernels, parts.stream, 11);
  }

  void load(std::int64_t micro_batch, const Batch& batch) const {
    const std::int64_t data = place.topology.size(data_axes), at = place.topology.index(data_axes, place.rank);
    random_batch(batch, deck.model.vocab, (micro_batch * data + at) * deck.schedule.micro_batch);
  }
  /// Totals of the step, its reduced gradients in the accumulators.
  StepTotals gradients() {
    run_gradients(parts, loader(), timers);
    return totals();
  }
  StepTotals step(std::int64_t n) {
    run_step(parts, {.step = n, .lr = 1e-3, .beta1 = 0.9, .beta2 = 0.95, .clip = 1}, loader(), timers);
    return totals();
  }
  StepTotals evaluate() {
    run_evaluation(parts, parts.micro_batches(), loader());
    return totals();
  }
  LoadBatch loader() {
    return [this](std::int64_t micro_batch, const Batch& batch) { load(micro_batch, batch); };
  }

  const Deck deck;
  const Place place;
  const std::unique_ptr<Device> device = make_cpu_device(1);
  Timers timers;
  Parts parts;

 private:
  StepTotals totals() const {
    const double* const t = parts.totals.ptr<double>();
    return {t[0], t[1], t[2], t[3]};
  }
};

/// Calls f(tensor, sequence) for every way to cut this world.
template <class F>
void for_layouts(F&& f) {
  for (int tensor = 2; tensor <= MpiComm::world().size(); tensor *= 2) {
    for (const bool sequence : {false, true}) {
      CAPTURE(tensor);
      CAPTURE(sequence);
      f(tensor, sequence);
    }
  }
}

}  // namespace

TEST_CASE("loss and gradients are those of one rank") {
  for (const auto& [name, model] : models) {
    CAPTURE(name);
    Run one(tiny_deck(model), MpiComm{});
    const StepTotals expected = one.gradients();
    const Sections gradients = gather_gradients(one.parts);
    const StepTotals evaluated = one.evaluate();
    for_layouts([&](int tensor, bool sequence) {
      Run run(split_deck(model, tensor, sequence), MpiComm::world());
      const StepTotals totals = run.gradients();
      CHECK(std::abs(totals.loss - expected.loss) <= 1e-13 * expected.loss);
      CHECK(totals.tokens == expected.tokens);
      CHECK(std::abs(totals.squares - expected.squares) <= 1e-12 * expected.squares);
      CHECK(totals.non_finite == 0);
      CHECK(first_difference(gather_gradients(run.parts), gradients, 1e-13) == "");
      const StepTotals again = run.evaluate();
      CHECK(std::abs(again.loss - evaluated.loss) <= 1e-13 * evaluated.loss);
      CHECK(again.tokens == evaluated.tokens);
    });
  }
}
