// SPDX-License-Identifier: Apache-2.0
// ranks: 8
// label: full
// timeout: 28800
/// Every layout of the three models on up to 8 ranks trains the same model as one rank.
#include "support/layout_matrix.hpp"

using namespace llmtrain;

TEST_CASE("all layouts agree with one rank") {
  LayoutJob job;
  for (const auto& [name, deck] : matrix_models()) {
    for (const int ranks : {1, 2, 3, 4, 6, 8}) {
      const std::vector<Layout> all = all_layouts(deck, ranks);
      if (job.world.rank() == 0) std::printf("%s: %zu layouts on %d ranks\n", name.c_str(), all.size(), ranks);
      check_layouts(job, deck, all);
    }
  }
}
