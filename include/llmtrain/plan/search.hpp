// SPDX-License-Identifier: Apache-2.0
/// All layouts of a deck on so many ranks, memory first, then time.
#pragma once

#include <string>
#include <vector>

#include "llmtrain/plan/layout.hpp"

namespace llmtrain {

/// A layout that fits.
struct Candidate {
  Deck deck;
  std::int64_t peak_bytes = 0;
  StepTimes times;
  double mfu_a = 0;
};

struct Search {
  std::vector<Candidate> ranked;  ///< the fastest first
  std::int64_t tried = 0;         ///< layouts that the deck's rules allow
  std::int64_t too_large = 0;
  /// Layouts not looked at: they fit with less recompute, or with a lower ZeRO level, which is faster.
  std::int64_t slower = 0;
};

/// Over tensor (within a node), pipeline, chunks (interleaved), ZeRO level (ZeRO-3 also with as many weights whole as fit),
/// micro-batch and recompute, for the fastest pipelines layers dealt by time, and for the fastest layouts in fp8 copies of
/// weights that are kept; everything else is as the deck says.
Search search_layouts(const Deck& resolved, int ranks, const Hardware& hardware);

/// The `rows` fastest as a table, and what the best loses or wins against the best with another value of each choice.
std::string search_text(const Search& search, const Deck& deck, int ranks, const Hardware& hardware, int rows);

/// A batch script for Slurm that runs `deck_path` on the ranks of this hardware; to be submitted from the top of the
/// repository.
std::string job_script(const Deck& deck, const std::string& deck_path, int ranks, const Hardware& hardware);

}  // namespace llmtrain
