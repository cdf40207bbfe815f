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
