// SPDX-License-Identifier: Apache-2.0
// ranks: 2 4 8
/// Tensor and sequence parallelism, with every option of both model families: all ranks as one tensor group, or as several
/// under data parallelism, train what one rank trains.
#include <algorithm>
#include <cmath>

#include "llmtrain/driver/dry_run.hpp"
#include "llmtrain/driver/step.hpp"
#include "support/checked_flights.hpp"
#include "support/gpt.hpp"
#include "support/layouts.hpp"
#include "support/random_batch.hpp"

using namespace llmtrain;

namespace {

/// K and V have fewer heads than eight ranks; 257 rows of vocabulary leave some of eight ranks without a true one.
Deck llama() {
  Deck deck;
  deck.run.steps = 20;
  deck.data.seed = deck.run.seed;
  deck.data.samples = 20 * 8;
  deck.schedule.global_batch = 8;
  deck.schedule.micro_batch = 1;
  deck.optimizer.lr = 1e-3;
  deck.optimizer.min_lr = 1e-4;
  deck.optimizer.warmup_steps = 4;
  deck.precision.compute = Compute::fp64;
  ModelConfig& m = deck.model;
  m.layers = 2;
  m.hidden = 32;
  m.heads = 8;
  m.kv_heads = 2;
  m.head_dim = 4;
  m.ffn = 48;
  m.seq_len = 16;
  m.vocab = 257;
  m.vocab_multiple = 16;
  m.init_std = 0.1;
  return deck;
}

Deck full_llama() {
  Deck deck = llama();
  deck.model.kv_heads = 1;
  deck.model.tied = true;
  deck.model.qkv_bias = true;
  deck.model.qk_norm = true;
  deck.model.dropout = 0.1;
  return deck;
}

Deck gpt() {
  Deck deck = llama();
  deck.model = as_gpt(deck.model);
  deck.model.dropout = 0.1;
  return deck;
}

Deck with(Deck deck, Compute compute, Recompute recompute = Recompute::none) {
  deck.precision.compute = compute;
  deck.schedule.recompute = recompute;
  return deck;
}

/// Every way to cut the world into tensor groups.
std::vector<Deck> cuts(const Deck& model) {
  std::vector<Deck> decks;
  for (int tensor = 2; tensor <= MpiComm::world().size(); tensor *= 2) {
    for (const bool sequence : {false, true}) {
      Deck deck = model;
      deck.parallel.tensor = tensor;
      deck.parallel.sequence = sequence;
      check_deck(deck, {.ranks = MpiComm::world().size()});
      decks.push_back(deck);
    }
  }
  return decks;
}

/// Runs a deck on all ranks and compares.
void check_run(LayoutJob& job, const Deck& deck, std::int64_t steps, const LayoutNumbers& expected,
               Agreement agreement) {
  const LayoutNumbers numbers = job.run(deck, job.world.size(), steps);
  CHECK(std::ssize(numbers.loss) == steps);
  job.check_agreement(numbers, expected, agreement);
}

}  // namespace

TEST_CASE("gradients in fp64 are those of one rank") {
  LayoutJob job;
  for (const Deck& model : {llama(), full_llama(), gpt()}) {
    const LayoutNumbers one = job.run(serial(model), 1, 1);
    for (const Deck& deck : cuts(model)) {
      check_run(job, deck, 1, one, Agreement::bound);
    }
  }
}

TEST_CASE("tokens and sums are not touched on their way, nor used before they are there") {
  LayoutJob job;
  for (const Deck& model : {full_llama(), gpt()}) {
    Deck deck = with(model, Compute::fp32);
    deck.parallel.tensor = job.world.size();
    deck.parallel.sequence = true;
    const LayoutNumbers unchecked = job.run(deck, job.world.size(), 2);
    const CheckedFlights checked;
    check_run(job, deck, 2, unchecked, Agreement::bits);
  }
}

TEST_CASE("bf16 is near one rank") {
  LayoutJob job;
  Deck model = with(full_llama(), Compute::bf16);
  // Rotation is weak over so few positions: the gradient of a key bias nearly cancels, and rounding is what is left of it.
  model.model.qkv_bias = false;
  const LayoutNumbers one = job.run(serial(model), 1, 3);
  for (const Deck& deck : cuts(model)) check_run(job, deck, 3, one, Agreement::bound);
}

TEST_CASE("recompute changes no bit of a tensor-parallel layout") {
  LayoutJob job;
  for (const Deck& model : {full_llama(), gpt()}) {
    for (const bool sequence : {false, true}) {
      Deck deck = with(model, Compute::fp32);
      deck.parallel.tensor = job.world.size();
      deck.parallel.sequence = sequence;
      const LayoutNumbers kept = job.run(deck, job.world.size(), 2);
      for (const Recompute recompute : {Recompute::selective, Recompute::block}) {
        check_run(job, with(deck, Compute::fp32, recompute), 2, kept, Agreement::bits);
      }
    }
  }
}

namespace {

/// Logits of a sample's last `count` tokens from the initial weights: columns of this rank's vocabulary.
std::vector<double> logits_of(Deck deck, const MpiComm& world, std::int64_t count) {
  deck.parallel.zero = 0;  // weights are there without being announced
  const std::unique_ptr<Device> device = make_cpu_device(1);
  const Place place{Topology(deck, world ? world.size() : 1), world ? world.rank() : 0, world};
  Parts parts(deck, place, *device, measure(deck, place.topology, place.rank, DeviceKind::cpu).scratch_bytes);
  parts.params.initialise(parts.kernels, parts.stream, 11);
  Stage& stage = parts.stages[0];
  Batch batch = parts.batches[0][0];
  random_batch(batch, deck.model.vocab, 5);
  batch.samples = {};
  Context ctx = parts.context();
  const std::int64_t rows = ctx.tensor.rows(batch.count()), hidden = deck.model.hidden;
  std::vector<double> input(static_cast<std::size_t>(rows * hidden));
  std::vector<double> values(static_cast<std::size_t>(count * stage.shapes().vocab));
  stage.logits(ctx, batch, {Tensor::dense(input.data(), DType::fp64, {rows, hidden}), {}, {}}, parts.params,
               Tensor::dense(values.data(), DType::fp64, {count, stage.shapes().vocab}));
  return values;
}

}  // namespace

TEST_CASE("a rank's logits are its columns of one rank's") {
  const MpiComm world = MpiComm::world();
  for (const Deck& model : {full_llama(), gpt()}) {
    for (const std::int64_t count : {std::int64_t{1}, model.model.seq_len}) {
      const std::vector<double> whole = logits_of(model, MpiComm{}, count);
      const std::int64_t columns = std::ssize(whole) / count;
      for (const Deck& deck : cuts(model)) {
        const LocalShapes shapes(deck.model, world.rank() % deck.parallel.tensor, deck.parallel.tensor);
        const std::vector<double> mine = logits_of(deck, world, count);
        double difference = 0;
        for (std::int64_t t = 0; t < count; ++t) {
          for (std::int64_t c = 0; c < shapes.vocab_range.valid; ++c) {
            const double expected = whole[static_cast<std::size_t>(t * columns + shapes.vocab_range.first + c)];
            difference =
                std::max(difference, std::abs(mine[static_cast<std::size_t>(t * shapes.vocab + c)] - expected));
          }
        }
        CHECK(difference <= 1e-13);  // of numbers near 1
      }
    }
  }
}
