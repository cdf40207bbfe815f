// SPDX-License-Identifier: Apache-2.0
/// The data that a deck names.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "llmtrain/config/deck.hpp"
#include "llmtrain/data/dataset.hpp"
#include "llmtrain/data/index_memory.hpp"

namespace llmtrain {

/// A set that is evaluated by itself.
struct ValidSet {
  std::string
      name;  ///< "valid" for the split's part; else the last part of the prefix, or all of it where two are equal
  std::shared_ptr<const Dataset> dataset;
};

/// What a run reads.
struct TrainingData {
  std::shared_ptr<const Dataset> train;
  std::vector<ValidSet> valid;        ///< in the deck's order; empty: no evaluation
  std::vector<std::string> warnings;  ///< for the log, one line each
};

/// Opens the data of a deck. Train has at least data.samples (else run.steps x global_batch) samples; each valid
/// set at least data.eval_batches x global_batch, from data.valid or else from the split; the seed is data.seed, else run.seed.
/// Several training sets are blended: by their weights, or without weights one pass over each, in proportion to their
/// samples. Evaluation is off, with a warning, where the validation part of the split is too small for one sample; of a
/// blend those sets are left out whose part is.
/// A set whose sidecar records an id outside `vocab`, or another tokenizer than `tokenizer` (a digest; empty: any), is
/// refused here; ids of other sets are checked as they are read. Throws Error(configuration) for what the deck asks
/// wrongly, before any file is opened but for the tokenizer; Error(missing_input or
/// bad_input) for files that cannot be used, among them a training set of fewer than seq_len + 1 tokens.
/// Orders stand in `memory`, which the caller builds before samples are read; without one they are built here.
TrainingData open_training_data(const DataConfig& data, const RunConfig& run, std::int64_t seq_len,
                                std::int64_t global_batch, std::int64_t vocab, const std::string& tokenizer = {},
                                std::shared_ptr<IndexMemory> memory = nullptr);

}  // namespace llmtrain
