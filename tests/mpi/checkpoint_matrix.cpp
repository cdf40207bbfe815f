// SPDX-License-Identifier: Apache-2.0
// ranks: 4
/// Checkpoints of eight layouts in some of the others, of one model; checkpoint_matrix_full has all of them.
#include "support/checkpoint_matrix.hpp"

using namespace llmtrain;

TEST_CASE("every layout goes on from others") {
  std::vector<NamedDeck> decks = checkpoint_matrix::models();
  decks.resize(1);
  checkpoint_matrix::check_pairs(decks, {0, 3});
}
