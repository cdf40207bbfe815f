// SPDX-License-Identifier: Apache-2.0
/// Micro-batches as a pure function of (step, micro-batch, data-parallel rank).
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "llmtrain/data/dataset.hpp"

namespace llmtrain {

/// The share of one data-parallel rank. Micro-batch and global batch are in sequences;
/// micro_batch x data_size divides global_batch.
struct LoaderShape {
  std::int64_t micro_batch = 1;
  std::int64_t seq_len = 1;
  std::int64_t global_batch = 1;
  int data_rank = 0;
  int data_size = 1;
  std::int64_t vocab = 0;                ///< true vocabulary: ids are checked against it
  std::int32_t masked_token = no_token;  ///< the target after this id has no weight (data.mask_eod)
  bool document_mask = false;            ///< documents do not see each other (data.document_mask)

  static constexpr std::int32_t no_token = -1;
};

/// One micro-batch on the host; each span is [micro_batch * seq_len], sequence after sequence.
struct MicroBatch {
  std::span<const std::int32_t> tokens;
  std::span<const std::int32_t> targets;    ///< the token after each
  std::span<const std::int32_t> positions;  ///< 0 to seq_len - 1 in every sequence; with a document mask, in a document
  std::span<const std::int32_t> order;      ///< the stable permutation that sorts `tokens` by id
  std::span<const float> weights;  ///< of each target in the loss: 1, or 0 after the masked token and in prompts
  /// Place in its sequence of the first token of each token's document; empty: no document mask.
  std::span<const std::int32_t> starts;
  std::int64_t step = 0;
  std::span<const std::int64_t> samples;  ///< [micro_batch]: number of each row in the run, not counted round
  std::int64_t documents = 0;             ///< that begin in the rows, cut ones included; 0: no document mask
};

/// Loads micro-batches of one dataset. Row i of micro-batch m of step s (1-based) on rank d is sample
/// (s - 1) global_batch + m micro_batch data_size + d micro_batch + i, counted round the end of the dataset. So which
/// samples make a step depends on global_batch alone.
class Loader {
 public:
  Loader(std::shared_ptr<const Dataset> dataset, LoaderShape shape);

  static constexpr int buffers = 3;

  /// Micro-batches beyond those of the step are the next steps'. The views stay valid for `buffers` - 1 more
  /// loads. Allocates nothing. Throws Error(bad_input) naming the data set, sequence, token and id for an id
  /// outside the vocabulary, or if the files were changed while in use.
  MicroBatch load(std::int64_t step, std::int64_t micro);

  std::int64_t samples() const { return dataset_->samples(); }
  /// Micro-batches of a step on each rank.
  std::int64_t micro_batches() const { return shape_.global_batch / (shape_.micro_batch * shape_.data_size); }

 private:
  struct Buffer {
    std::vector<std::int32_t> tokens, targets, order;  // each [micro_batch * seq_len]
    std::vector<std::int64_t> samples;                 // [micro_batch]
    std::vector<float> weights;                        // [micro_batch * seq_len]
    std::vector<std::int32_t> positions, starts;       // the same, only with a document mask
  };
  void check_ids(std::int64_t sample) const;
  void sort(Buffer& buffer);

  std::shared_ptr<const Dataset> dataset_;
  LoaderShape shape_;
  std::array<Buffer, buffers> buffers_;
  std::size_t current_ = 0;
  std::vector<std::int32_t> row_;     // [seq_len + 1]
  std::vector<std::int32_t> places_;  // [vocab], of the counting sort
  std::vector<std::int32_t>
      positions_;  // [micro_batch * seq_len], without a document mask the same for every micro-batch
};

}  // namespace llmtrain
