// SPDX-License-Identifier: Apache-2.0
/// Epochs of samples, each permuted by itself.
#include "llmtrain/data/shuffled_order.hpp"

#include <algorithm>

#include "llmtrain/base/error.hpp"
#include "llmtrain/base/philox.hpp"
#include "llmtrain/data/permutation.hpp"

namespace llmtrain {

namespace {

constexpr std::uint64_t epoch_bits = 40;  // of a philox stream; the bits above are the set's

}  // namespace

ShuffledOrder::ShuffledOrder(const IndexedDataset& data, SequenceRange range, std::int64_t seq_len,
                             std::int64_t requested, std::int64_t seed, std::int64_t stream)
    : data_(&data),
      seq_len_(seq_len),
      seed_(static_cast<std::uint64_t>(seed)),
      stream_(static_cast<std::uint64_t>(stream) << epoch_bits),
      first_token_(data.first_token(range.begin)) {
  const std::int64_t tokens = data.first_token(range.end) - first_token_;
  LLMTRAIN_CHECK(tokens > seq_len && requested >= 0);
  per_epoch_ = (tokens - 1) / seq_len;
  spare_ = tokens - 1 - per_epoch_ * seq_len;
  epochs_ = std::max<std::int64_t>(requested - 1, 0) / per_epoch_ + 1;
  require(epochs_ < std::int64_t{1} << epoch_bits, ExitCode::configuration,
          "data: {} samples of {} tokens are {} passes over {}, more than 2^40; lower run.steps or data.samples",
          requested, seq_len, epochs_, data.prefix());
}

StreamPlace ShuffledOrder::begin(std::int64_t sample) const {
  const auto stream = stream_ + static_cast<std::uint64_t>(sample / per_epoch_);
  const auto spare = static_cast<std::uint64_t>(spare_) + 1;
  // Above every index that the permutation draws from; seq_len is far below 2^32, so the remainder is as good as uniform.
  const auto shift = static_cast<std::int64_t>(random_bits(seed_, stream, std::uint64_t{1} << 63).first % spare);
  const std::int64_t number = Permutation(per_epoch_, seed_, stream)(sample % per_epoch_);
  return data_->place_of(first_token_ + shift + number * seq_len_);
}

}  // namespace llmtrain
