// SPDX-License-Identifier: Apache-2.0
// ranks: 1 2 3
/// Random small decks: the rules refuse one with their exit code, or it makes a step and an evaluation.
#include <doctest/doctest.h>

#include <cmath>
#include <random>
#include <vector>

#include "llmtrain/base/error.hpp"
#include "llmtrain/config/check.hpp"
#include "llmtrain/config/dump.hpp"
#include "llmtrain/driver/dry_run.hpp"
#include "llmtrain/driver/resolve.hpp"
#include "llmtrain/driver/step.hpp"
#include "support/random_batch.hpp"

using namespace llmtrain;

namespace {

/// Values as a user may combine them, many of which do not fit together; the same on all ranks.
class RandomDecks {
 public:
  Deck next() {
    Deck deck;
    draw(deck.model);
    deck.run.steps = of({0, 1, 3, 40});
    deck.parallel.zero = static_cast<int>(of({0, 1, 1, 2}));
    deck.parallel.bucket = of({60, 1000, 500'000'000});
    deck.parallel.tensor = static_cast<int>(of({1, 1, 1, 1, 2}));
    deck.schedule.micro_batch = of({1, 2, 3});
    deck.schedule.global_batch = of({1, 2, 4, 6, 12});
    deck.schedule.recompute = static_cast<Recompute>(of({0, 0, 1, 2}));
    deck.precision.compute = static_cast<Compute>(of({0, 1, 1, 2}));
    deck.optimizer.schedule = static_cast<LrSchedule>(of({0, 1, 2, 3}));
    deck.optimizer.warmup_steps = of({0, 0, 1, 20});
    deck.optimizer.clip = of({0, 1}) == 0 ? 0.0 : 1.0;
    deck.optimizer.weight_decay = of({0, 1}) == 0 ? 0.0 : 0.1;
    return deck;
  }

 private:
  std::int64_t of(const std::vector<std::int64_t>& values) { return values[random_() % values.size()]; }

  void draw(ModelConfig& m) {
    const bool gpt = of({0, 1}) == 1;
    m.family = gpt ? Family::gpt : Family::llama;
    m.activation = gpt ? Activation::gelu : Activation::silu;
    m.positions = gpt ? Positions::learned : Positions::rope;
    m.qkv_bias = gpt || of({0, 1}) == 1;
    m.qk_norm = !gpt && of({0, 1}) == 1;
    m.layers = of({1, 1, 2, 3});
    m.hidden = of({6, 8, 12, 20, 33});
    m.heads = of({1, 2, 3, 4});
    m.kv_heads = of({1, 1, 2, 4});
    m.head_dim = of({0, 0, 4, 5});
    m.ffn = of({1, 8, 13});
    m.seq_len = of({1, 2, 7, 16});
    m.vocab = of({2, 16, 29});
    m.vocab_multiple = of({0, 1, 8});
    m.tied = of({0, 1}) == 1;
    m.dropout = of({0, 1}) == 0 ? 0.0 : 0.2;
    if (!gpt && of({0, 1, 2}) == 0) m.rope.scaling.factor = 8;
  }

  std::mt19937_64 random_{2024};
};

void run(const Deck& deck, const MpiComm& world) {
  const std::unique_ptr<Device> device = make_cpu_device(1);
  const Topology topology(deck, world.size());
  const Measured measured = measure(deck, topology, world.rank(), DeviceKind::cpu);
  Parts parts(deck, {topology, world.rank(), world}, *device, measured.scratch_bytes);
  parts.params.initialise(parts.kernels, parts.stream, 3);
  const auto load = [&](std::int64_t m, const Batch& batch) { random_batch(batch, deck.model.vocab, m); };
  Timers timers;
  run_step(parts, {.step = 1, .lr = 1e-3, .beta1 = 0.9, .beta2 = 0.95, .clip = deck.optimizer.clip}, load, timers);
  const double* const scalars = parts.scalars.ptr<double>();
  // A sequence of one token has no loss: every fifth position has none, the first too.
  if (deck.model.seq_len > 1) {
    CHECK(scalars[4] == 1);
    CHECK(std::isfinite(scalars[5]));
    CHECK(std::abs(scalars[5] - std::log(static_cast<double>(deck.model.vocab))) < 1);
  }
  run_evaluation(parts, 1, load);
  CHECK(std::isfinite(parts.totals.ptr<double>()[0]));
}

}  // namespace

TEST_CASE("a random deck is refused by the rules or makes a step") {
  const MpiComm world = MpiComm::world();
  RandomDecks decks;
  int refused = 0, made = 0;
  while (made < 60) {
    const Deck deck = decks.next();
    CAPTURE(to_yaml(deck));
    try {
      check_deck(deck, {.ranks = world.size()});
    } catch (const Error& error) {
      CHECK(error.code() == ExitCode::configuration);
      REQUIRE(++refused < 5000);
      continue;
    }
    run(resolve(deck, deck.model.vocab, DeviceKind::cpu), world);
    ++made;
  }
  CHECK(refused > 60);
}
