// SPDX-License-Identifier: Apache-2.0
/// Which tokens make up sample i: Megatron's GPTDataset order (document, sample and shuffle index), in 64-bit arithmetic.
///
/// The chosen sequences, repeated `epochs` times and shuffled, are read as one stream of tokens. Sample j of the unshuffled
/// order is tokens [j seq_len, j seq_len + seq_len] of the stream, so neighbours share one token; the shuffle index says
/// which j sample i is. Megatron stores the place of every j; here it is found from the lengths when asked for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>

#include "llmtrain/data/index_memory.hpp"
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

/// A list of numbers below 2^32 in 4 bytes each, or of any in 8, somewhere in memory.
class CompactIndex {
 public:
  CompactIndex(const std::byte* data, std::int64_t size, std::int64_t largest)
      : data_(data), size_(size), is_wide_(needs_8_bytes(largest)) {}

  static bool needs_8_bytes(std::int64_t largest) { return largest > std::numeric_limits<std::uint32_t>::max(); }
  static std::int64_t entry_bytes(std::int64_t largest) { return needs_8_bytes(largest) ? 8 : 4; }

  std::int64_t size() const { return size_; }
  std::int64_t operator[](std::int64_t i) const {
    return is_wide_ ? reinterpret_cast<const std::int64_t*>(data_)[i]
                    : std::int64_t{reinterpret_cast<const std::uint32_t*>(data_)[i]};
  }

 private:
  const std::byte* data_;  // aligned to 8
  std::int64_t size_;
  bool is_wide_;
};

/// The order of one dataset and split.
class SampleIndex {
 public:
  /// `data` must outlive the index. `seed` is numpy's: Error(configuration) outside [0, 2^32). The sequences of `range`
  /// must hold at least seq_len + 1 tokens. Places are known when `memory` is built, the plan at once.
  SampleIndex(const IndexedDataset& data, SequenceRange range, std::int64_t seq_len, std::int64_t requested,
              std::int64_t seed, std::shared_ptr<IndexMemory> memory);
  /// In memory of its own.
  SampleIndex(const IndexedDataset& data, SequenceRange range, std::int64_t seq_len, std::int64_t requested,
              std::int64_t seed);

  const SamplePlan& plan() const { return plan_; }
  std::int64_t samples() const { return plan_.samples; }
  std::int64_t stream_tokens() const { return tokens_; }
  /// Sequences in stream order: the document index.
  CompactIndex sequences() const { return {memory_->at(place_), entries_, range_.end}; }
  /// Sample i is the shuffle()[i]-th of the stream: the shuffle index.
  CompactIndex shuffle() const { return {memory_->at(place_ + shuffle_at_), plan_.samples, plan_.samples}; }
  /// Place of token `token` of the stream, position in the document index; of token j seq_len it is row j of the sample
  /// index.
  StreamPlace place(std::int64_t token) const;
  /// Place of the first token of a sample.
  StreamPlace begin(std::int64_t sample) const { return place(shuffle()[sample] * seq_len_); }
  std::int64_t sequence(std::int64_t position) const { return sequences()[position]; }

 private:
  void fill(std::byte* memory, std::int64_t seed) const;
  /// First token of every 16th position of the stream.
  std::span<const std::int64_t> marks() const;

  const IndexedDataset* data_;
  SequenceRange range_;
  std::int64_t seq_len_;
  SamplePlan plan_;
  std::int64_t tokens_ = 0;   // of the stream
  std::int64_t entries_ = 0;  // of the document index
  std::shared_ptr<IndexMemory> memory_;
  std::int64_t place_ = 0;       // in the memory: the document index, and in bytes from there
  std::int64_t shuffle_at_ = 0;  // the shuffle index
  std::int64_t marks_at_ = 0;    // the marks
};

/// Tokens of a range of sequences.
std::int64_t count_tokens(const IndexedDataset& data, SequenceRange range);

}  // namespace llmtrain
