// SPDX-License-Identifier: Apache-2.0
/// Which tokens make up sample i: Megatron's GPTDataset order (document, sample and shuffle index), in 64-bit arithmetic.
///
/// The chosen sequences, repeated `epochs` times and shuffled, are read as one stream of tokens. Sample j of the unshuffled
/// order is tokens [j seq_len, j seq_len + seq_len] of the stream, so neighbours share one token; the shuffle index says
/// which j sample i is. Megatron stores the place of every j; here it is found from the lengths when asked for.
#pragma once

#include <cstdint>
#include <variant>
#include <vector>

#include "llmtrain/data/indexed_dataset.hpp"
#include "llmtrain/data/split.hpp"

namespace llmtrain {

/// How often the data is passed over, and how many samples that gives.
struct SamplePlan {
  std::int64_t epochs = 1;
  std::int64_t samples = 0;              ///< at least the number asked for
  bool separate_last_epoch = false;      ///< the last epoch is shuffled by itself, so that little of it is needed early
  std::int64_t samples_before_last = 0;  ///< of the epochs before the last one; 0 for a single epoch
};

/// Fewest epochs whose tokens give `requested` samples of seq_len + 1 tokens. Needs tokens_per_epoch >= 1.
/// Throws Error(configuration) where a product leaves 64 bits.
SamplePlan plan_samples(std::int64_t tokens_per_epoch, std::int64_t seq_len, std::int64_t requested);

/// A list of numbers below 2^32 in 4 bytes each, or of any in 8.
class CompactIndex {
 public:
  CompactIndex() = default;
  CompactIndex(std::int64_t size, std::int64_t largest);
  std::int64_t size() const;
  std::int64_t operator[](std::int64_t i) const;

  std::variant<std::vector<std::uint32_t>, std::vector<std::int64_t>> values;
};

/// The order of one dataset and split.
class SampleIndex {
 public:
  /// `data` must outlive the index. `seed` is numpy's: Error(configuration) outside [0, 2^32). The sequences of `range`
  /// must hold at least seq_len + 1 tokens.
  SampleIndex(const IndexedDataset& data, SequenceRange range, std::int64_t seq_len, std::int64_t requested,
              std::int64_t seed);

  const SamplePlan& plan() const { return plan_; }
  std::int64_t samples() const { return plan_.samples; }
  std::int64_t stream_tokens() const { return tokens_; }
  /// Sequences in stream order: the document index.
  const CompactIndex& sequences() const { return sequences_; }
  /// Sample i is the shuffle()[i]-th of the stream: the shuffle index.
  const CompactIndex& shuffle() const { return shuffle_; }
  /// Place of token `token` of the stream, position in the document index; of token j seq_len it is row j of the sample
  /// index.
  StreamPlace place(std::int64_t token) const;
  /// Place of the first token of a sample.
  StreamPlace begin(std::int64_t sample) const { return place(shuffle_[sample] * seq_len_); }
  std::int64_t sequence(std::int64_t position) const { return sequences_[position]; }

 private:
  const IndexedDataset* data_;
  std::int64_t seq_len_;
  SamplePlan plan_;
  CompactIndex sequences_;
  CompactIndex shuffle_;
  std::vector<std::int64_t> marks_;  // first token of every 16th position of the stream
  std::int64_t tokens_ = 0;
};

/// Tokens of a range of sequences.
std::int64_t count_tokens(const IndexedDataset& data, SequenceRange range);

}  // namespace llmtrain
