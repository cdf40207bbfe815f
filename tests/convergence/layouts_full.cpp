// SPDX-License-Identifier: Apache-2.0
/// All layouts of the equivalence matrix and all their ranks: bytes as predicted, groups agree, no hazard. MATRIX_PART=k and
/// MATRIX_PARTS=n: every n-th layout from the k-th on.
// label: full
// timeout: 7200
#include "support/layout_traces.hpp"

using namespace llmtrain;

TEST_CASE(
    "every rank of every layout: bytes are the predicted ones, groups agree, nothing is touched out of its turn") {
  check_matrix({1, 2, 3, 4, 6, 8}, matrix_part, [](const Deck& deck, int ranks) {
    check_allocations(deck, ranks);
    check_traces(deck, ranks);
  });
}
