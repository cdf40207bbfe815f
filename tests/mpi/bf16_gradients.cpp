// SPDX-License-Identifier: Apache-2.0
// ranks: 4
/// Gradients, what travels of them, and moments in bf16: every layout trains what one rank trains, within the bound of
/// bf16, and ZeRO's bits are kept.
#include "support/layouts.hpp"
#include "support/small_deck.hpp"

using namespace llmtrain;

namespace {

constexpr int steps = 3;

constexpr Storage16 fp32 = Storage16::fp32, bf16 = Storage16::bf16;

/// Four ranks with two micro-batches each: data, data x tensor, data x pipeline, and replicas of two shards.
std::vector<Deck> arrangements(const Deck& deck) {
  std::vector<Deck> decks(4, deck);
  for (Deck& d : decks) d.parallel.persistence = 0;
  decks[1].parallel.tensor = 2;
  decks[2].parallel.pipeline = 2;
  decks[3].parallel.shard = 2;
  for (Deck& d : decks) d.schedule.micro_batch = 2 * d.parallel.tensor * d.parallel.pipeline;
  return decks;
}

}  // namespace

TEST_CASE("every storage of gradients trains the same model in every layout, and none is without effect") {
  LayoutJob job;
  for (const PrecisionConfig precision : {PrecisionConfig{Compute::bf16, bf16, bf16, fp32},
                                          {Compute::bf16, bf16, fp32, fp32},
                                          {Compute::bf16, fp32, bf16, fp32},
                                          {Compute::bf16, bf16, bf16, bf16}}) {
    Deck deck = small_deck(steps, 2, true);
    deck.precision = precision;
    const LayoutNumbers one = job.run(serial(deck), 1, steps);
    for (const Deck& arranged : arrangements(deck)) {
      Deck wide = arranged;
      wide.precision = {};
      std::vector<LayoutNumbers> numbers;
      for (const int zero : {0, 1, 2, 3}) {
        Deck layout = arranged;
        layout.parallel.zero = wide.parallel.zero = zero;
        CAPTURE(zero);
        numbers.push_back(job.run(layout, 4, steps));
        job.check_agreement(numbers.back(), one, Agreement::bound);
        const LayoutNumbers other = job.run(wide, 4, steps);
        if (!other.gradients.empty()) CHECK(first_failure(compare(numbers.back(), other, Agreement::bits)) != nullptr);
      }
      // Replicas round the sums of their shards, which ZeRO-0 does not form.
      if (arranged.parallel.shard == 0) job.check_agreement(numbers[1], numbers[0], Agreement::bits);
      job.check_agreement(numbers[3], numbers[2], Agreement::bits);
    }
  }
  MESSAGE(job.worst());
}
