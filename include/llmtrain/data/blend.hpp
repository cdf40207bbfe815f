// SPDX-License-Identifier: Apache-2.0
/// Several data sets as one: Megatron's BlendedDataset, and its like for data.order shuffled.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <variant>
#include <vector>

#include "llmtrain/data/dataset.hpp"
#include "llmtrain/data/index_memory.hpp"
#include "llmtrain/data/permutation.hpp"

namespace llmtrain {

/// Weights divided by their sum, which is added up in numpy's order, so that the quotients are numpy's bits.
std::vector<double> normalised(std::span<const double> weights);

/// Samples that a blend of `size` takes of a set of normalised weight `weight`, rounded up.
std::int64_t samples_to_use(std::int64_t size, double weight);
/// And those to make, half a percent more: the greedy order below may draw a few more than its share from a set.
std::int64_t samples_to_build(std::int64_t size, double weight);

/// A sample of one of the sets.
struct BlendPlace {
  std::int64_t set = 0;
  std::int64_t sample = 0;
};

/// The order of Megatron: the i-th sample is the next one of the set that is furthest below its share of i samples, the
/// first of these where several are.
class BlendIndex {
 public:
  /// `weights` are normalised here, as Megatron does once more. Two bytes a sample stay in `memory`, and are known when it
  /// is built.
  BlendIndex(std::span<const double> weights, std::int64_t size, std::shared_ptr<IndexMemory> memory);
  /// In memory of its own.
  BlendIndex(std::span<const double> weights, std::int64_t size);

  std::int64_t size() const { return size_; }
  BlendPlace operator[](std::int64_t i) const;
  /// Samples drawn of each set.
  std::span<const std::int64_t> drawn() const { return drawn_before(rows() - 1); }

 private:
  /// Of `drawn_before`: one for every 1024th sample, and one for the end.
  std::int64_t rows() const;
  std::span<const std::int64_t> drawn_before(std::int64_t row) const;
  const std::uint16_t* sets() const;
  void fill(std::byte* memory, std::span<const double> shares) const;

  std::int64_t sets_in_all_;
  std::int64_t size_;
  std::shared_ptr<IndexMemory> memory_;
  std::int64_t place_ = 0;  // in the memory: the rows, then the set of each sample
};

/// The order without an index: a permutation of all samples of all sets, `drawn` of each.
class ShuffledBlend {
 public:
  ShuffledBlend(std::span<const std::int64_t> drawn, std::int64_t seed);

  std::int64_t size() const { return ends_.back(); }
  BlendPlace operator[](std::int64_t i) const;

 private:
  std::vector<std::int64_t> ends_;  // running sum of what is drawn
  Permutation permutation_;
};

class BlendedDataset final : public Dataset {
 public:
  using Order = std::variant<BlendIndex, ShuffledBlend>;

  /// Sets of one seq_len. A set with fewer samples than are drawn of it begins anew.
  BlendedDataset(std::vector<std::shared_ptr<const Dataset>> sets, Order order);

  std::int64_t samples() const override;
  std::int64_t seq_len() const override { return sets_.front()->seq_len(); }
  using Dataset::sample;
  void sample(std::int64_t index, std::span<std::int32_t> out, const SampleMarks& marks) const override;
  std::vector<SamplePiece> pieces(std::int64_t index) const override;
  std::string fingerprint() const override;

  /// Which sample of which set sample `index` is.
  BlendPlace place(std::int64_t index) const;
  const Dataset& set(std::int64_t number) const { return *sets_[static_cast<std::size_t>(number)]; }
  std::int64_t sets() const { return static_cast<std::int64_t>(sets_.size()); }

 private:
  std::vector<std::shared_ptr<const Dataset>> sets_;
  Order order_;
};

}  // namespace llmtrain
