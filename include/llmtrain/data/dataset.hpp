// SPDX-License-Identifier: Apache-2.0
/// What a loader reads: samples of seq_len + 1 tokens in a fixed order.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace llmtrain {

/// Tokens [offset, offset + tokens) of a sequence of the set at `prefix`.
struct SamplePiece {
  std::string prefix;
  std::int64_t document = 0;
  std::int64_t sequence = 0;
  std::int64_t offset = 0;
  std::int64_t tokens = 0;
};

/// What is to be known of a sample besides its tokens; what is empty is not asked for.
struct SampleMarks {
  std::span<std::int32_t> starts;  ///< [seq_len], filled: place in the sample at which each input's document begins
  std::span<float> weights;  ///< [seq_len], of each target: becomes 0 where that is a token of a prompt without loss
};

/// Samples of seq_len + 1 tokens: inputs are tokens [0, seq_len), targets tokens [1, seq_len + 1). Reads are thread-safe.
class Dataset {
 public:
  virtual ~Dataset() = default;

  virtual std::int64_t samples() const = 0;
  virtual std::int64_t seq_len() const = 0;

  /// Fills `out` [seq_len + 1] with sample `index` of [0, samples()) and `marks`. Throws Error(bad_input or io_error) if
  /// the files have changed since they were opened.
  virtual void sample(std::int64_t index, std::span<std::int32_t> out, const SampleMarks& marks) const = 0;
  void sample(std::int64_t index, std::span<std::int32_t> out) const { sample(index, out, {}); }

  /// Where the tokens of sample `index` stand, in order.
  virtual std::vector<SamplePiece> pieces(std::int64_t index) const = 0;

  /// Digest of the data behind the samples; see IndexedDataset::fingerprint.
  virtual std::string fingerprint() const = 0;

  /// Where token `offset` of sample `index` stands, for messages: data set, sequence, document, token.
  std::string describe(std::int64_t index, std::int64_t offset) const;
};

}  // namespace llmtrain
