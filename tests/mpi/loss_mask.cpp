// SPDX-License-Identifier: Apache-2.0
// ranks: 4
/// Targets without weight add nothing to loss and gradient, in no layout, and layouts agree on what is left.
#include "support/layouts.hpp"
#include "support/small_deck.hpp"

using namespace llmtrain;

namespace {

/// Made-up samples. Their last token is a target only, so what it is can matter by its loss alone: it depends on `last`, and
/// has a weight where `last_counts`. Of the other targets a third has none.
class MaskedSamples final : public Dataset {
 public:
  MaskedSamples(const Deck& deck, std::int32_t last, bool last_counts)
      : seq_len_(deck.model.seq_len),
        vocab_(static_cast<std::int32_t>(deck.model.vocab)),
        last_(last),
        last_counts_(last_counts) {}
  std::int64_t samples() const override { return 64; }
  std::int64_t seq_len() const override { return seq_len_; }
  using Dataset::sample;
  void sample(std::int64_t index, std::span<std::int32_t> out, const SampleMarks& marks) const override {
    std::mt19937 random(static_cast<unsigned>(index));
    for (std::int32_t& id : out) id = static_cast<std::int32_t>(random() % static_cast<unsigned>(vocab_));
    out.back() = (out.back() + last_) % vocab_;
    for (float& weight : marks.weights) weight = random() % 3 == 0 ? 0.0F : weight;
    marks.weights.back() = last_counts_ ? 1.0F : 0.0F;
  }
  std::vector<SamplePiece> pieces(std::int64_t) const override { return {}; }
  std::string fingerprint() const override { return {}; }

 private:
  std::int64_t seq_len_;
  std::int32_t vocab_, last_;
  bool last_counts_;
};

}  // namespace

TEST_CASE("a target without weight may be anything") {
  LayoutJob job;
  const auto run = [&](const Deck& deck, int ranks, std::int32_t last, bool counts) {
    JobPart part;
    part.data = std::make_shared<const MaskedSamples>(deck, last, counts);
    return job.run(deck, ranks, 2, LoaderShape::no_token, part);
  };
  const Deck one = small_deck(2, 4, true);
  const LayoutNumbers whole = run(one, 1, 0, false);
  struct Axes {
    int tensor, pipeline, zero;
  };
  for (const Axes axes : {Axes{1, 1, 1}, {1, 1, 3}, {2, 1, 1}, {1, 2, 0}, {2, 2, 1}}) {
    Deck deck = one;
    deck.parallel.tensor = axes.tensor;
    deck.parallel.pipeline = axes.pipeline;
    deck.parallel.zero = axes.zero;
    deck.schedule.micro_batch = 1;
    const LayoutNumbers numbers = run(deck, 4, 0, false);
    job.check_agreement(run(deck, 4, 5, false), numbers, Agreement::bits);
    job.check_agreement(numbers, whole, Agreement::bound);
    const LayoutNumbers counted = run(deck, 4, 0, true), other = run(deck, 4, 5, true);
    if (!counted.layout.empty()) CHECK(counted.loss != other.loss);
  }
}
