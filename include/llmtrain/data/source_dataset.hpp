// SPDX-License-Identifier: Apache-2.0
/// The samples of one .bin/.idx pair, in either order.
#pragma once

#include <memory>
#include <variant>

#include "llmtrain/data/dataset.hpp"
#include "llmtrain/data/prompt_lengths.hpp"
#include "llmtrain/data/sample_index.hpp"
#include "llmtrain/data/shuffled_order.hpp"

namespace llmtrain {

/// `range` of a source, cut into samples by an order.
class SourceDataset final : public Dataset {
 public:
  using Order = std::variant<SampleIndex, ShuffledOrder>;

  /// Without `prompts` every target has its weight.
  SourceDataset(std::shared_ptr<const IndexedDataset> source, std::int64_t seq_len, Order order,
                std::shared_ptr<const PromptLengths> prompts = nullptr);
  /// In Megatron's order; see SampleIndex.
  SourceDataset(std::shared_ptr<const IndexedDataset> source, SequenceRange range, std::int64_t seq_len,
                std::int64_t requested, std::int64_t seed);

  std::int64_t samples() const override;
  std::int64_t seq_len() const override { return seq_len_; }
  using Dataset::sample;
  void sample(std::int64_t index, std::span<std::int32_t> out, const SampleMarks& marks) const override;
  std::vector<SamplePiece> pieces(std::int64_t index) const override;
  std::string fingerprint() const override;

  const IndexedDataset& source() const { return *source_; }
  const Order& order() const { return order_; }
  /// Of Megatron's order only.
  const SampleIndex& index() const { return std::get<SampleIndex>(order_); }

 private:
  /// Calls take(sequence, offset, tokens) for the parts of a sample that are not empty.
  template <class Take>
  void visit_pieces(std::int64_t index, Take take) const;

  std::shared_ptr<const IndexedDataset> source_;
  std::int64_t seq_len_;
  Order order_;
  std::shared_ptr<const PromptLengths> prompts_;
};

}  // namespace llmtrain
