// SPDX-License-Identifier: Apache-2.0
/// Samples of a deck's training and validation data.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "llmtrain/config/deck.hpp"
#include "llmtrain/data/sample_index.hpp"

namespace llmtrain {

/// Samples of seq_len + 1 tokens in a fixed order: inputs are tokens [0, seq_len), targets tokens [1, seq_len + 1).
/// Reads are thread-safe.
class Dataset {
 public:
  /// See SampleIndex for `range`, `requested` and `seed`.
  Dataset(std::shared_ptr<const IndexedDataset> source, SequenceRange range, std::int64_t seq_len,
          std::int64_t requested, std::int64_t seed);

  std::int64_t samples() const { return index_.samples(); }
  std::int64_t seq_len() const { return seq_len_; }
  const SampleIndex& index() const { return index_; }
  const IndexedDataset& source() const { return *source_; }

  /// Fills `out` [seq_len + 1] with sample `index` of [0, samples()). Throws Error(bad_input or io_error) if the files
  /// have changed since they were opened.
  void sample(std::int64_t index, std::span<std::int32_t> out) const;

  /// Where token `offset` of sample `index` stands, for messages: data set, sequence, document, token.
  std::string describe(std::int64_t index, std::int64_t offset) const;

 private:
  std::shared_ptr<const IndexedDataset> source_;
  std::int64_t seq_len_;
  SampleIndex index_;
};

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
/// Evaluation is off, with a warning, where the validation part of the split is too small for one sample.
/// A set whose sidecar records an id outside `vocab`, or another tokenizer than `tokenizer` (a digest; empty: any), is
/// refused here; ids of other sets are checked as they are read. Throws Error(configuration) for what the deck asks
/// wrongly, before any file is opened but for the tokenizer; Error(missing_input or
/// bad_input) for files that cannot be used, among them a training set of fewer than seq_len + 1 tokens.
TrainingData open_training_data(const DataConfig& data, const RunConfig& run, std::int64_t seq_len,
                                std::int64_t global_batch, std::int64_t vocab, const std::string& tokenizer = {});

}  // namespace llmtrain
