// SPDX-License-Identifier: Apache-2.0
/// data.order shuffled: samples in a random order that takes no memory, for data too large to index.
#pragma once

#include <cstdint>

#include "llmtrain/data/indexed_dataset.hpp"
#include "llmtrain/data/sample_index.hpp"
#include "llmtrain/data/split.hpp"

namespace llmtrain {

/// The sequences of `range`, in the order of the file, are one stream of tokens. An epoch cuts it into samples of seq_len
/// tokens (and one more, which neighbours share) from a random place before the first whole one on, so that not always the
/// same tail is left over, and takes them in the order of a Permutation of its own.
class ShuffledOrder {
 public:
  /// `data` must outlive the order. At least `requested` samples, in whole epochs. `stream` tells sets of one seed apart. The
  /// sequences of `range` must hold at least seq_len + 1 tokens.
  ShuffledOrder(const IndexedDataset& data, SequenceRange range, std::int64_t seq_len, std::int64_t requested,
                std::int64_t seed, std::int64_t stream);

  std::int64_t samples() const { return epochs_ * per_epoch_; }
  std::int64_t epochs() const { return epochs_; }
  std::int64_t samples_per_epoch() const { return per_epoch_; }
  /// Place of the first token of a sample. Positions are sequences.
  StreamPlace begin(std::int64_t sample) const;
  static std::int64_t sequence(std::int64_t position) { return position; }

 private:
  const IndexedDataset* data_;
  std::int64_t seq_len_;
  std::uint64_t seed_;
  std::uint64_t stream_;
  std::int64_t first_token_;  // of the range in the file
  std::int64_t spare_;        // tokens of an epoch that no sample needs
  std::int64_t per_epoch_;
  std::int64_t epochs_;
};

}  // namespace llmtrain
