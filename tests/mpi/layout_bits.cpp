// SPDX-License-Identifier: Apache-2.0
// ranks: 4
/// Options that must not change numbers: equal bits in every loss, norm, gradient and weight, in every kind of layout.
#include "support/layouts.hpp"
#include "support/small_deck.hpp"

using namespace llmtrain;

namespace {

constexpr int steps = 3;

Deck bits_deck(bool tied) {
  Deck deck = small_deck(steps, 4, tied);
  deck.precision.compute = Compute::fp32;
  deck.model.qkv_bias = true;
  deck.model.dropout = 0.1;
  return deck;
}

struct Axes {
  int tensor, pipeline;
};

/// The deck with each arrangement of four ranks, two micro-batches at least where a pipeline asks for them.
std::vector<Deck> arrangements(const Deck& deck, int micro_batches) {
  std::vector<Deck> decks;
  for (const Axes axes : {Axes{1, 1}, {2, 1}, {1, 2}, {2, 2}, {4, 1}, {1, 4}}) {
    Deck arranged = deck;
    arranged.parallel.tensor = axes.tensor;
    arranged.parallel.pipeline = axes.pipeline;
    const int data = 4 / (axes.tensor * axes.pipeline);
    arranged.schedule.micro_batch = deck.schedule.global_batch / (data * std::max(micro_batches, axes.pipeline));
    decks.push_back(arranged);
  }
  return decks;
}

class BitsTest {
 public:
  LayoutNumbers run(const Deck& deck) { return job_.run(deck, 4, steps); }
  void check_equal(const Deck& deck, const LayoutNumbers& expected) {
    job_.check_agreement(run(deck), expected, Agreement::bits);
  }

 private:
  LayoutJob job_;
};

}  // namespace

TEST_CASE("a second run, recompute, and how ZeRO moves its data change no bit") {
  BitsTest test;
  for (const Deck& arranged : arrangements(bits_deck(true), 2)) {
    for (int zero = 0; zero <= 3; ++zero) {
      Deck deck = arranged;
      deck.parallel.zero = zero;
      const LayoutNumbers expected = test.run(deck);
      test.check_equal(deck, expected);
      const auto changed = [&](auto change) {
        Deck other = deck;
        change(other);
        test.check_equal(other, expected);
      };
      changed([](Deck& d) { d.schedule.recompute = Recompute::selective; });
      changed([](Deck& d) { d.schedule.recompute = Recompute::block; });
      changed([](Deck& d) { d.parallel.bucket = 100; });
      changed([](Deck& d) { d.parallel.exchange = 1; });
      if (zero < 3) continue;
      changed([](Deck& d) { d.parallel.persistence = 0; });  // else these small weights stay whole
      changed([](Deck& d) { d.parallel.persistence = 1000; });
      changed([](Deck& d) { d.parallel.persistence = 0, d.parallel.prefetch = 0; });
      changed([](Deck& d) { d.parallel.persistence = 0, d.parallel.prefetch = 2000; });
      changed([](Deck& d) { d.parallel.persistence = 0, d.parallel.max_live = 1; });
    }
  }
}

TEST_CASE("the ZeRO level changes no bit with one micro-batch and no tied weight") {
  BitsTest test;
  for (Deck deck : arrangements(bits_deck(false), 1)) {
    if (deck.parallel.pipeline > 1) continue;  // several micro-batches
    deck.parallel.zero = 0;
    const LayoutNumbers expected = test.run(deck);
    deck.parallel.persistence = 0;
    for (deck.parallel.zero = 1; deck.parallel.zero <= 3; ++deck.parallel.zero) test.check_equal(deck, expected);
  }
}

TEST_CASE("ZeRO-0 and 1, and ZeRO-2 and 3, change no bit with several micro-batches and a tied weight") {
  BitsTest test;
  for (Deck deck : arrangements(bits_deck(true), 4)) {
    for (const int zero : {0, 2}) {
      deck.parallel.zero = zero;
      deck.parallel.persistence = 0;
      const LayoutNumbers expected = test.run(deck);
      deck.parallel.zero = zero + 1;
      test.check_equal(deck, expected);
    }
  }
}
