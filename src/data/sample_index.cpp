// SPDX-License-Identifier: Apache-2.0
/// Epochs, shuffles and places of samples.
#include "llmtrain/data/sample_index.hpp"

#include <algorithm>
#include <limits>
#include <numeric>
#include <span>
#include <type_traits>

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

/// Shuffles [0, first) and [first, size) one after the other, each if not empty.
void shuffle_parts(NumpyRandom& random, CompactIndex& index, std::int64_t first) {
  std::visit(
      [&](auto& values) {
        const std::span all(values);
        random.shuffle(all.first(static_cast<std::size_t>(first)));
        random.shuffle(all.subspan(static_cast<std::size_t>(first)));
      },
      index.values);
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

CompactIndex::CompactIndex(std::int64_t size, std::int64_t largest) {
  if (largest <= std::numeric_limits<std::uint32_t>::max()) {
    values.emplace<0>(static_cast<std::size_t>(size));
  } else {
    values.emplace<1>(static_cast<std::size_t>(size));
  }
}

std::int64_t CompactIndex::size() const {
  return std::visit([](const auto& list) { return static_cast<std::int64_t>(list.size()); }, values);
}

std::int64_t CompactIndex::operator[](std::int64_t i) const {
  return std::visit([i](const auto& list) { return static_cast<std::int64_t>(list[static_cast<std::size_t>(i)]); },
                    values);
}

SampleIndex::SampleIndex(const IndexedDataset& data, SequenceRange range, std::int64_t seq_len, std::int64_t requested,
                         std::int64_t seed)
    : data_(&data), seq_len_(seq_len) {
  NumpyRandom random(numpy_seed(seed));
  const std::int64_t per_epoch = count_tokens(data, range);
  LLMTRAIN_CHECK(per_epoch > seq_len);
  plan_ = plan_samples(per_epoch, seq_len, requested);
  tokens_ = plan_.epochs * per_epoch;

  // One generator a dataset and split, used for the documents first and the samples after them.
  const std::int64_t entries = product(plan_.epochs, range.size());
  sequences_ = CompactIndex(entries, range.end);
  std::visit(
      [&](auto& values) {
        using Value = typename std::remove_reference_t<decltype(values)>::value_type;
        auto sequence = static_cast<Value>(range.begin);
        for (Value& value : values) {
          value = sequence;
          if (++sequence == static_cast<Value>(range.end)) sequence = static_cast<Value>(range.begin);
        }
      },
      sequences_.values);
  shuffle_parts(random, sequences_, plan_.separate_last_epoch ? entries - range.size() : 0);

  shuffle_ = CompactIndex(plan_.samples, plan_.samples);
  std::visit(
      [](auto& values) {
        using Value = typename std::remove_reference_t<decltype(values)>::value_type;
        std::iota(values.begin(), values.end(), Value{0});
      },
      shuffle_.values);
  shuffle_parts(random, shuffle_, plan_.separate_last_epoch ? plan_.samples_before_last : 0);

  marks_.reserve(static_cast<std::size_t>(entries / mark_every + 1));
  std::int64_t token = 0;
  for (std::int64_t i = 0; i < entries; ++i) {
    if (i % mark_every == 0) marks_.push_back(token);
    token += data.length(sequences_[i]);
  }
}

StreamPlace SampleIndex::place(std::int64_t token) const {
  LLMTRAIN_CHECK(token >= 0 && token < tokens_);
  const auto after = std::upper_bound(marks_.begin(), marks_.end(), token);
  StreamPlace place;
  place.position = (after - marks_.begin() - 1) * mark_every;
  place.offset = token - *(after - 1);
  for (;; ++place.position) {
    const std::int64_t length = data_->length(sequences_[place.position]);
    if (place.offset < length) return place;
    place.offset -= length;
  }
}

std::int64_t count_tokens(const IndexedDataset& data, SequenceRange range) {
  return data.first_token(range.end) - data.first_token(range.begin);
}

}  // namespace llmtrain
