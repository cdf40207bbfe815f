// SPDX-License-Identifier: Apache-2.0
// ranks: 8
/// Layouts in which every pair of choices occurs train the same model as one rank: gradients of step 1 in fp64, losses
/// of 20 steps in fp32.
#include "support/layout_matrix.hpp"

using namespace llmtrain;

TEST_CASE("a pairwise cover of all layouts agrees with one rank") {
  LayoutJob job;
  for (const auto& [name, deck] : matrix_models()) {
    std::vector<Layout> all;
    for (const int ranks : {1, 2, 3, 4, 6, 8}) {
      for (const Layout& layout : all_layouts(deck, ranks)) all.push_back(layout);
    }
    const std::vector<Layout> cover = pairwise_cover(all);
    if (job.world.rank() == 0) std::printf("%s: %zu of %zu layouts\n", name.c_str(), cover.size(), all.size());
    check_layouts(job, deck, cover);
  }
}

TEST_CASE("a head whose logits are made in several chunks") {
  LayoutJob job;
  Deck deck = matrix_models().front().deck;
  deck.precision.compute = Compute::fp32;
  deck.model.layers = 2;
  deck.model.seq_len = 40;
  deck.model.vocab = 90'000;  // 2^25 logits a chunk: 960 tokens are three chunks on one rank, two on each of two
  const LayoutNumbers reference = job.run(serial(deck), 1, 2);
  for (const auto& [pipeline, sequence] : {std::pair(1, true), std::pair(2, false)}) {
    deck.parallel.tensor = 2;
    deck.parallel.pipeline = pipeline;
    deck.parallel.sequence = sequence;
    job.check_agreement(job.run(deck, 2 * pipeline, 2), reference, Agreement::bound);
  }
}
