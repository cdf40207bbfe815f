// SPDX-License-Identifier: Apache-2.0
/// Epochs, shuffles and places of samples.
#include "llmtrain/data/sample_index.hpp"

#include <algorithm>
#include <limits>
#include <numeric>
#include <span>
#include <utility>

#include "llmtrain/base/beacon.hpp"
#include "llmtrain/base/error.hpp"
#include "llmtrain/data/numpy_random.hpp"

namespace llmtrain {
namespace {

constexpr std::int64_t mark_every = 16;

std::int64_t product(std::int64_t a, std::int64_t b) {
  std::int64_t result = 0;
  // One bit is kept free, so that callers may add to the result.
  require(!__builtin_mul_overflow(a, b, &result) && result < std::numeric_limits<std::int64_t>::max() / 2,
          ExitCode::configuration, "data: {} x {} tokens are more than 2^62; lower run.steps or data.samples", a, b);
  return result;
}

std::int64_t aligned(std::int64_t bytes) { return (bytes + 7) / 8 * 8; }

/// Calls fill with the entries of a CompactIndex, as they are stored.
template <class Fill>
void with_entries(std::byte* data, std::int64_t size, std::int64_t largest, Fill fill) {
  const auto count = static_cast<std::size_t>(size);
  if (CompactIndex::needs_8_bytes(largest)) {
    fill(std::span(reinterpret_cast<std::int64_t*>(data), count));
  } else {
    fill(std::span(reinterpret_cast<std::uint32_t*>(data), count));
  }
}

/// Shuffles [0, first) and [first, size) one after the other, each if not empty.
template <class Value>
void shuffle_parts(NumpyRandom& random, std::span<Value> values, std::int64_t first) {
  random.shuffle(values.first(static_cast<std::size_t>(first)));
  random.shuffle(values.subspan(static_cast<std::size_t>(first)));
}

std::uint32_t numpy_seed(std::int64_t seed) {
  require(seed >= 0 && seed <= std::numeric_limits<std::uint32_t>::max(), ExitCode::configuration,
          "data.seed (or run.seed): {} cannot seed the sample order; choose a number from 0 to 4294967295", seed);
  return static_cast<std::uint32_t>(seed);
}

}  // namespace

SamplePlan plan_samples(std::int64_t tokens_per_epoch, std::int64_t seq_len, std::int64_t requested) {
  LLMTRAIN_CHECK(tokens_per_epoch >= 1 && seq_len >= 1 && requested >= 0);
  SamplePlan plan;
  const std::int64_t needed = product(requested, seq_len) + 1;
  plan.epochs = (needed - 1) / tokens_per_epoch + 1;
  plan.samples = (product(plan.epochs, tokens_per_epoch) - 1) / seq_len;
  if (plan.epochs > 1) {
    plan.samples_before_last = ((plan.epochs - 1) * tokens_per_epoch - 1) / seq_len;
    const std::int64_t from_last = requested - plan.samples_before_last;
    const std::int64_t per_epoch = (tokens_per_epoch - 1) / seq_len;
    LLMTRAIN_CHECK(from_last >= 0 && from_last <= per_epoch + 1);
    plan.separate_last_epoch = from_last < static_cast<std::int64_t>(0.80 * static_cast<double>(per_epoch));
  }
  return plan;
}

SampleIndex::SampleIndex(const IndexedDataset& data, SequenceRange range, std::int64_t seq_len, std::int64_t requested,
                         std::int64_t seed, std::shared_ptr<IndexMemory> memory)
    : data_(&data), range_(range), seq_len_(seq_len) {
  numpy_seed(seed);
  const std::int64_t per_epoch = count_tokens(data, range);
  LLMTRAIN_CHECK(per_epoch > seq_len);
  plan_ = plan_samples(per_epoch, seq_len, requested);
  tokens_ = plan_.epochs * per_epoch;
  entries_ = product(plan_.epochs, range.size());
  shuffle_at_ = aligned(product(entries_, CompactIndex::entry_bytes(range.end)));
  marks_at_ = shuffle_at_ + aligned(product(plan_.samples, CompactIndex::entry_bytes(plan_.samples)));
  const std::int64_t bytes = marks_at_ + 8 * ((entries_ - 1) / mark_every + 1);
  place_ = memory->request(bytes, [self = *this, seed](std::byte* at) { self.fill(at, seed); });
  memory_ = std::move(memory);
}

SampleIndex::SampleIndex(const IndexedDataset& data, SequenceRange range, std::int64_t seq_len, std::int64_t requested,
                         std::int64_t seed)
    : SampleIndex(data, range, seq_len, requested, seed, std::make_shared<IndexMemory>()) {
  memory_->build();
}

void SampleIndex::fill(std::byte* memory, std::int64_t seed) const {
  // One generator a dataset and split, used for the documents first and the samples after them.
  NumpyRandom random(numpy_seed(seed));
  with_entries(memory, entries_, range_.end, [&](auto values) {
    using Value = typename decltype(values)::value_type;
    auto sequence = static_cast<Value>(range_.begin);
    for (Value& value : values) {
      value = sequence;
      if (++sequence == static_cast<Value>(range_.end)) sequence = static_cast<Value>(range_.begin);
    }
    shuffle_parts(random, values, plan_.separate_last_epoch ? entries_ - range_.size() : 0);
  });
  with_entries(memory + shuffle_at_, plan_.samples, plan_.samples, [&](auto values) {
    using Value = typename decltype(values)::value_type;
    std::iota(values.begin(), values.end(), Value{0});
    shuffle_parts(random, values, plan_.separate_last_epoch ? plan_.samples_before_last : 0);
  });
  const CompactIndex sequences(memory, entries_, range_.end);
  auto* mark = reinterpret_cast<std::int64_t*>(memory + marks_at_);
  std::int64_t token = 0;
  for (std::int64_t i = 0; i < entries_; ++i) {
    if (i % mark_every == 0) {
      *mark++ = token;
      Beacon::beat();
    }
    token += data_->length(sequences[i]);
  }
}

std::span<const std::int64_t> SampleIndex::marks() const {
  const auto count = static_cast<std::size_t>((entries_ - 1) / mark_every + 1);
  return {reinterpret_cast<const std::int64_t*>(memory_->at(place_ + marks_at_)), count};
}

StreamPlace SampleIndex::place(std::int64_t token) const {
  LLMTRAIN_CHECK(token >= 0 && token < tokens_);
  const std::span<const std::int64_t> marks = this->marks();
  const CompactIndex sequences = this->sequences();
  const auto after = std::upper_bound(marks.begin(), marks.end(), token);
  StreamPlace place;
  place.position = (after - marks.begin() - 1) * mark_every;
  place.offset = token - *(after - 1);
  for (;; ++place.position) {
    const std::int64_t length = data_->length(sequences[place.position]);
    if (place.offset < length) return place;
    place.offset -= length;
  }
}

std::int64_t count_tokens(const IndexedDataset& data, SequenceRange range) {
  return data.first_token(range.end) - data.first_token(range.begin);
}

}  // namespace llmtrain
