// SPDX-License-Identifier: Apache-2.0
// ranks: 4
/// Linear layers in fp8: every layout trains what one rank trains, and ZeRO and recompute keep its bits.
#include "support/layouts.hpp"
#include "support/small_deck.hpp"

using namespace llmtrain;

namespace {

constexpr int steps = 3;

Deck fp8_deck(bool gpt) {
  Deck deck = small_fp8_deck(steps, 2, gpt);
  if (gpt) {
    ModelConfig& m = deck.model;
    m.family = Family::gpt;
    m.kv_heads = m.heads;
    m.activation = Activation::gelu_tanh;
    m.positions = Positions::learned;
    m.qkv_bias = true;
    m.dropout = 0.1;
  }
  deck.parallel.persistence = 0;
  return deck;
}

}  // namespace

TEST_CASE("fp8 trains the same model in every layout, ZeRO levels and recompute the same bits") {
  LayoutJob job;
  for (const bool gpt : {false, true}) {
    CAPTURE(gpt);
    const Deck deck = fp8_deck(gpt);
    Deck tensor = deck;
    tensor.schedule.micro_batch = 4;
    const LayoutNumbers one = job.run(serial(tensor), 1, steps);
    tensor.parallel.tensor = 2;
    for (const bool sequence : {false, true}) {
      tensor.parallel.sequence = sequence;
      for (const int pipeline : {1, 2}) {
        tensor.parallel.pipeline = pipeline;
        job.check_agreement(job.run(tensor, 2 * pipeline, steps), one, Agreement::bound);
      }
    }
    Deck whole = deck;
    whole.schedule.micro_batch = 2;
    whole.parallel.zero = 0;
    const LayoutNumbers alone = job.run(serial(whole), 1, steps);
    std::vector<LayoutNumbers> zero;
    for (whole.parallel.zero = 0; whole.parallel.zero <= 3; ++whole.parallel.zero) {
      zero.push_back(job.run(whole, 4, steps));
      job.check_agreement(zero.back(), alone, Agreement::bound);
    }
    job.check_agreement(zero[1], zero[0], Agreement::bits);
    job.check_agreement(zero[3], zero[2], Agreement::bits);
    whole.precision.keep_fp8 = true;
    for (const int level : {0, 1, 3}) {
      whole.parallel.zero = level;
      whole.parallel.persistence = level < 3 ? 0 : 100'000;  // of ZeRO-3's weights some have copies
      job.check_agreement(job.run(whole, 4, steps), zero[static_cast<std::size_t>(level)], Agreement::bits);
    }
    whole.precision.keep_fp8 = false;
    whole.parallel.persistence = whole.parallel.zero = 0;
    // Copies of activations that are kept, and such that are made again.
    whole.schedule.recompute = Recompute::selective;
    for (const char* module : {"norm", "activation", "mlp"}) {
      whole.schedule.recompute_modules = {module};
      job.check_agreement(job.run(whole, 4, steps), zero[0], Agreement::bits);
    }
    whole.schedule.recompute = Recompute::block;
    job.check_agreement(job.run(whole, 4, steps), zero[0], Agreement::bits);
    whole = serial(whole);
    whole.parallel.pipeline = 2;
    job.check_agreement(job.run(whole, 2, steps), alone, Agreement::bound);
  }
  MESSAGE(job.worst());
}

TEST_CASE("fp8 trains what bf16 trains, within its bound, and not the same bits") {
  LayoutJob job;
  for (const bool gpt : {false, true}) {
    CAPTURE(gpt);
    Deck deck = fp8_deck(gpt);
    deck.schedule.micro_batch = 4;
    const LayoutNumbers rounded = job.run(serial(deck), 1, steps);
    deck.precision.linear = LinearProducts::compute;
    const LayoutNumbers wide = job.run(serial(deck), 1, steps);
    job.check_agreement(wide, rounded, Agreement::bound);
    if (!wide.gradients.empty()) CHECK(first_failure(compare(wide, rounded, Agreement::bits)) != nullptr);
  }
  MESSAGE(job.worst());
}
