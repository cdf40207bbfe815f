// SPDX-License-Identifier: Apache-2.0
/// Reads of samples.
#include "llmtrain/data/source_dataset.hpp"

#include <algorithm>
#include <utility>

#include "llmtrain/base/digest.hpp"
#include "llmtrain/base/error.hpp"

namespace llmtrain {

std::string Dataset::describe(std::int64_t index, std::int64_t offset) const {
  for (const SamplePiece& piece : pieces(index)) {
    if (offset < piece.tokens) {
      return fmt::format("{}: sequence {} (document {}), token {}", piece.prefix, piece.sequence, piece.document,
                         piece.offset + offset);
    }
    offset -= piece.tokens;
  }
  return fmt::format("sample {}", index);
}

SourceDataset::SourceDataset(std::shared_ptr<const IndexedDataset> source, std::int64_t seq_len, Order order,
                             std::shared_ptr<const PromptLengths> prompts)
    : source_(std::move(source)), seq_len_(seq_len), order_(std::move(order)), prompts_(std::move(prompts)) {}

SourceDataset::SourceDataset(std::shared_ptr<const IndexedDataset> source, SequenceRange range, std::int64_t seq_len,
                             std::int64_t requested, std::int64_t seed)
    : SourceDataset(source, seq_len, SampleIndex(*source, range, seq_len, requested, seed)) {}

std::int64_t SourceDataset::samples() const {
  return std::visit([](const auto& order) { return order.samples(); }, order_);
}

template <class Take>
void SourceDataset::visit_pieces(std::int64_t index, Take take) const {
  LLMTRAIN_CHECK(index >= 0 && index < samples());
  std::visit(
      [&](const auto& order) {
        StreamPlace place = order.begin(index);
        for (std::int64_t left = seq_len_ + 1; left > 0; ++place.position, place.offset = 0) {
          const std::int64_t sequence = order.sequence(place.position);
          const std::int64_t tokens = std::min(left, source_->length(sequence) - place.offset);
          if (tokens > 0) take(sequence, place.offset, tokens);
          left -= tokens;
        }
      },
      order_);
}

void SourceDataset::sample(std::int64_t index, std::span<std::int32_t> out, const SampleMarks& marks) const {
  LLMTRAIN_CHECK(static_cast<std::int64_t>(out.size()) == seq_len_ + 1);
  const std::span<std::int32_t> starts = marks.starts;
  const std::span<float> weights = marks.weights;
  LLMTRAIN_CHECK(starts.empty() || static_cast<std::int64_t>(starts.size()) == seq_len_);
  LLMTRAIN_CHECK(weights.empty() || static_cast<std::int64_t>(weights.size()) == seq_len_);
  source_->require_unchanged();
  std::size_t begin = 0;
  visit_pieces(index, [&](std::int64_t sequence, std::int64_t offset, std::int64_t count) {
    const auto tokens = static_cast<std::size_t>(count);
    source_->read(sequence, offset, out.subspan(begin, tokens));
    // The last token of a sample is a target only, so the last piece may have no start.
    const std::size_t end = std::min(begin + tokens, starts.size());
    if (begin < end) std::fill_n(starts.begin() + begin, end - begin, static_cast<std::int32_t>(begin));
    if (prompts_ != nullptr && !weights.empty()) {
      // Input i has token i + 1 for its target: the first token of a sample is nobody's.
      const std::int64_t prompt = std::clamp<std::int64_t>((*prompts_)[sequence] - offset, 0, count);
      const std::size_t first = std::max<std::size_t>(begin, 1), last = begin + static_cast<std::size_t>(prompt);
      if (first < last) std::fill(weights.begin() + first - 1, weights.begin() + last - 1, 0.0F);
    }
    begin += tokens;
  });
}

std::string SourceDataset::fingerprint() const {
  if (prompts_ == nullptr) return source_->fingerprint();
  Digest digest;
  for (const std::string& one : {source_->fingerprint(), prompts_->fingerprint()}) digest.add(one.data(), one.size());
  return digest.hex();
}

std::vector<SamplePiece> SourceDataset::pieces(std::int64_t index) const {
  std::vector<SamplePiece> all;
  visit_pieces(index, [&](std::int64_t sequence, std::int64_t offset, std::int64_t tokens) {
    all.push_back({source_->prefix(), source_->document_of(sequence), sequence, offset, tokens});
  });
  return all;
}

}  // namespace llmtrain
