// SPDX-License-Identifier: Apache-2.0
// ranks: 4
// label: full
/// Checkpoints of eight layouts in each other, of an untied Llama and a tied GPT.
#include "support/checkpoint_matrix.hpp"

using namespace llmtrain;

TEST_CASE("every layout goes on from every other") {
  checkpoint_matrix::check_pairs(checkpoint_matrix::models(), {0, 1, 2, 3, 4, 5, 6, 7});
}
