// SPDX-License-Identifier: Apache-2.0
/// Shares of sets, and whose turn it is.
#include "llmtrain/data/blend.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "llmtrain/base/beacon.hpp"
#include "llmtrain/base/digest.hpp"
#include "llmtrain/base/error.hpp"

namespace llmtrain {

namespace {

constexpr double surplus = 0.005;  // Megatron's mid_level_dataset_surplus
constexpr std::int64_t mark_every = 1024;
constexpr std::size_t most_sets = std::numeric_limits<std::int16_t>::max();  // Megatron's limit too

/// numpy's sum: below eight numbers one after the other, up to 128 in eight interleaved sums, else by halves.
double numpy_sum(std::span<const double> values) {
  const std::size_t n = values.size();
  if (n < 8) return std::accumulate(values.begin(), values.end(), 0.0);
  if (n <= 128) {
    double r[8];
    std::copy_n(values.begin(), 8, r);
    std::size_t i = 8;
    for (; i + 8 <= n; i += 8) {
      for (std::size_t k = 0; k < 8; ++k) r[k] += values[i + k];
    }
    const double sum = ((r[0] + r[1]) + (r[2] + r[3])) + ((r[4] + r[5]) + (r[6] + r[7]));
    return std::accumulate(values.begin() + static_cast<std::ptrdiff_t>(i), values.end(), sum);
  }
  const std::size_t half = n / 2 - n / 2 % 8;
  return numpy_sum(values.first(half)) + numpy_sum(values.subspan(half));
}

std::int64_t to_count(double value) {
  require(value < 0x1p62, ExitCode::configuration,
          "data.train: a blend of {:.3g} samples is more than 2^62; lower run.steps or data.samples", value);
  return static_cast<std::int64_t>(value);
}

}  // namespace

std::vector<double> normalised(std::span<const double> weights) {
  const double sum = numpy_sum(weights);
  std::vector<double> shares(weights.begin(), weights.end());
  for (double& share : shares) share /= sum;
  return shares;
}

std::int64_t samples_to_use(std::int64_t size, double weight) {
  return to_count(std::ceil(static_cast<double>(size) * weight));
}

std::int64_t samples_to_build(std::int64_t size, double weight) {
  return to_count(std::ceil(std::ceil(static_cast<double>(size) * weight) * (1 + surplus)));
}

BlendIndex::BlendIndex(std::span<const double> weights, std::int64_t size, std::shared_ptr<IndexMemory> memory)
    : sets_in_all_(std::ssize(weights)), size_(size) {
  require(weights.size() <= most_sets, ExitCode::configuration,
          "data.train: {} sets are too many; a blend has at most {}", weights.size(), most_sets);
  place_ = memory->request(8 * rows() * sets_in_all_ + 2 * size,
                           [self = *this, shares = normalised(weights)](std::byte* at) { self.fill(at, shares); });
  memory_ = std::move(memory);
}

BlendIndex::BlendIndex(std::span<const double> weights, std::int64_t size)
    : BlendIndex(weights, size, std::make_shared<IndexMemory>()) {
  memory_->build();
}

std::int64_t BlendIndex::rows() const { return (size_ + mark_every - 1) / mark_every + 1; }

std::span<const std::int64_t> BlendIndex::drawn_before(std::int64_t row) const {
  const auto* first = reinterpret_cast<const std::int64_t*>(memory_->at(place_));
  return {first + row * sets_in_all_, static_cast<std::size_t>(sets_in_all_)};
}

const std::uint16_t* BlendIndex::sets() const {
  return reinterpret_cast<const std::uint16_t*>(memory_->at(place_) + 8 * rows() * sets_in_all_);
}

void BlendIndex::fill(std::byte* memory, std::span<const double> shares) const {
  auto* row = reinterpret_cast<std::int64_t*>(memory);
  auto* sets = reinterpret_cast<std::uint16_t*>(memory + 8 * rows() * sets_in_all_);
  std::vector<std::int64_t> drawn(shares.size());
  for (std::int64_t i = 0; i < size_; ++i) {
    if (i % mark_every == 0) {
      row = std::copy(drawn.begin(), drawn.end(), row);
      Beacon::beat();
    }
    const auto turn = static_cast<double>(std::max<std::int64_t>(i, 1));
    std::size_t chosen = 0;
    double furthest = std::numeric_limits<double>::lowest();
    for (std::size_t k = 0; k < shares.size(); ++k) {
      const double below = shares[k] * turn - static_cast<double>(drawn[k]);
      if (below > furthest) {
        furthest = below;
        chosen = k;
      }
    }
    sets[i] = static_cast<std::uint16_t>(chosen);
    ++drawn[chosen];
  }
  std::copy(drawn.begin(), drawn.end(), row);
}

BlendPlace BlendIndex::operator[](std::int64_t i) const {
  const std::uint16_t set = sets()[i];
  const std::int64_t row = i / mark_every;
  const auto since = std::count(sets() + row * mark_every, sets() + i, set);
  return {set, drawn_before(row)[set] + since};
}

ShuffledBlend::ShuffledBlend(std::span<const std::int64_t> drawn, std::int64_t seed)
    : ends_(drawn.size()),
      // A stream that no set's epochs use.
      permutation_(std::accumulate(drawn.begin(), drawn.end(), std::int64_t{0}), static_cast<std::uint64_t>(seed),
                   std::numeric_limits<std::uint64_t>::max()) {
  std::partial_sum(drawn.begin(), drawn.end(), ends_.begin());
}

BlendPlace ShuffledBlend::operator[](std::int64_t i) const {
  const std::int64_t number = permutation_(i);
  const auto end = std::upper_bound(ends_.begin(), ends_.end(), number);
  return {end - ends_.begin(), end == ends_.begin() ? number : number - *(end - 1)};
}

BlendedDataset::BlendedDataset(std::vector<std::shared_ptr<const Dataset>> sets, Order order)
    : sets_(std::move(sets)), order_(std::move(order)) {
  LLMTRAIN_CHECK(!sets_.empty());
}

std::int64_t BlendedDataset::samples() const {
  return std::visit([](const auto& order) { return order.size(); }, order_);
}

BlendPlace BlendedDataset::place(std::int64_t index) const {
  LLMTRAIN_CHECK(index >= 0 && index < samples());
  BlendPlace place = std::visit([index](const auto& order) { return order[index]; }, order_);
  place.sample %= set(place.set).samples();
  return place;
}

void BlendedDataset::sample(std::int64_t index, std::span<std::int32_t> out, const SampleMarks& marks) const {
  const BlendPlace at = place(index);
  set(at.set).sample(at.sample, out, marks);
}

std::vector<SamplePiece> BlendedDataset::pieces(std::int64_t index) const {
  const BlendPlace at = place(index);
  return set(at.set).pieces(at.sample);
}

std::string BlendedDataset::fingerprint() const {
  Digest digest;
  for (const auto& set : sets_) {
    const std::string one = set->fingerprint();
    digest.add(one.data(), one.size());
  }
  return digest.hex();
}

}  // namespace llmtrain
