// SPDX-License-Identifier: Apache-2.0
/// A pairwise cover of all layouts, issued on every rank without computing: members of a group agree on every batch, and no
/// rank has a hazard.
#include "support/layout_traces.hpp"

using namespace llmtrain;

TEST_CASE("in every kind of layout all members of a group issue the same batches, without a hazard") {
  check_matrix({1, 2, 3, 4, 6, 8}, pairwise_cover, check_traces);
}
