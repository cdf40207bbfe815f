// SPDX-License-Identifier: Apache-2.0
// ranks: 8
// label: full
// timeout: 28800
/// Every layout of the three models on up to 8 ranks trains the same model as one rank. MATRIX_PART and MATRIX_PARTS in
/// the environment run a part of it: every n-th layout from the k-th on.
#include "support/layout_matrix.hpp"

using namespace llmtrain;

TEST_CASE("all layouts agree with one rank") {
  LayoutJob job;
  for (const auto& [name, deck] : matrix_models()) {
    for (const int ranks : {1, 2, 3, 4, 6, 8}) {
      const std::vector<Layout> all = all_layouts(deck, ranks);
      const std::vector<Layout> chosen = matrix_part(all);
      if (job.world.rank() == 0) {
        std::printf("%s on %d ranks: %zu of %zu layouts\n", name.c_str(), ranks, chosen.size(), all.size());
      }
      check_layouts(job, deck, chosen);
    }
  }
}
