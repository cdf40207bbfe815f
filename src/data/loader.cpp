// SPDX-License-Identifier: Apache-2.0
/// Rows of a micro-batch, and the permutation that sorts its tokens.
#include "llmtrain/data/loader.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "llmtrain/base/error.hpp"

namespace llmtrain {

Loader::Loader(std::shared_ptr<const Dataset> dataset, LoaderShape shape)
    : dataset_(std::move(dataset)), shape_(shape) {
  LLMTRAIN_CHECK(dataset_ != nullptr && dataset_->seq_len() == shape.seq_len);
  LLMTRAIN_CHECK(shape.micro_batch > 0 && shape.vocab > 0 && shape.data_rank >= 0 && shape.data_rank < shape.data_size);
  LLMTRAIN_CHECK(shape.global_batch > 0 && shape.global_batch % (shape.micro_batch * shape.data_size) == 0);
  require(shape.micro_batch <= std::numeric_limits<std::int32_t>::max() / shape.seq_len, ExitCode::configuration,
          "schedule.micro_batch {} x model.seq_len {} are more than 2^31 tokens; lower one of them", shape.micro_batch,
          shape.seq_len);
  const auto tokens = static_cast<std::size_t>(shape.micro_batch * shape.seq_len);
  for (Buffer& buffer : buffers_) {
    buffer.tokens.resize(tokens);
    buffer.targets.resize(tokens);
    buffer.order.resize(tokens);
    buffer.samples.resize(static_cast<std::size_t>(shape.micro_batch));
    buffer.weights.resize(tokens);
    buffer.positions.resize(shape.document_mask ? tokens : 0);
    buffer.starts.resize(buffer.positions.size());
  }
  row_.resize(static_cast<std::size_t>(shape.seq_len + 1));
  places_.resize(static_cast<std::size_t>(shape.vocab));
  positions_.resize(tokens);
  for (std::size_t i = 0; i < tokens; ++i) {
    positions_[i] = static_cast<std::int32_t>(i % static_cast<std::size_t>(shape.seq_len));
  }
}

MicroBatch Loader::load(std::int64_t step, std::int64_t micro) {
  LLMTRAIN_CHECK(step >= 1 && micro >= 0);
  current_ = (current_ + 1) % buffers;
  Buffer& buffer = buffers_[current_];
  const std::int64_t first = (step - 1) * shape_.global_batch + micro * (shape_.micro_batch * shape_.data_size) +
                             shape_.data_rank * shape_.micro_batch;
  std::fill(buffer.weights.begin(), buffer.weights.end(), 1.0F);  // every sample is full
  for (std::int64_t i = 0; i < shape_.micro_batch; ++i) {
    buffer.samples[static_cast<std::size_t>(i)] = first + i;
    const std::int64_t sample = (first + i) % dataset_->samples();
    const std::int64_t at = i * shape_.seq_len;
    const auto part_of = [&](auto& values) {
      return values.empty() ? std::span(values)
                            : std::span(values).subspan(static_cast<std::size_t>(at), row_.size() - 1);
    };
    dataset_->sample(sample, row_, {part_of(buffer.starts), part_of(buffer.weights)});
    check_ids(sample);
    std::copy(row_.begin(), row_.end() - 1, buffer.tokens.begin() + at);
    std::copy(row_.begin() + 1, row_.end(), buffer.targets.begin() + at);
  }
  std::transform(buffer.starts.begin(), buffer.starts.end(), positions_.begin(), buffer.positions.begin(),
                 [](std::int32_t start, std::int32_t place) { return place - start; });
  if (shape_.masked_token != LoaderShape::no_token) {
    std::transform(
        buffer.tokens.begin(), buffer.tokens.end(), buffer.weights.begin(), buffer.weights.begin(),
        [masked = shape_.masked_token](std::int32_t id, float weight) { return id == masked ? 0.0F : weight; });
  }
  sort(buffer);
  const std::vector<std::int32_t>& positions = shape_.document_mask ? buffer.positions : positions_;
  const std::int64_t documents = std::count(buffer.positions.begin(), buffer.positions.end(), 0);
  return {buffer.tokens, buffer.targets, positions,      buffer.order, buffer.weights,
          buffer.starts, step,           buffer.samples, documents};
}

void Loader::check_ids(std::int64_t sample) const {
  // As unsigned, negative ids are beyond any vocabulary too.
  const auto bad = [vocab = static_cast<std::uint64_t>(shape_.vocab)](std::int32_t id) {
    return static_cast<std::uint64_t>(static_cast<std::int64_t>(id)) >= vocab;
  };
  const auto found = std::find_if(row_.begin(), row_.end(), bad);
  if (found == row_.end()) return;
  fail(ExitCode::bad_input,
       "{} has id {}, but the model's vocabulary is {}; the data were made with another tokenizer: check "
       "data.tokenizer and model.vocab",
       dataset_->describe(sample, found - row_.begin()), *found, shape_.vocab);
}

void Loader::sort(Buffer& buffer) {
  std::fill(places_.begin(), places_.end(), 0);
  for (const std::int32_t id : buffer.tokens) ++places_[static_cast<std::size_t>(id)];
  std::int32_t before = 0;
  for (std::int32_t& place : places_) place = std::exchange(before, before + place);
  for (std::size_t i = 0; i < buffer.tokens.size(); ++i) {
    std::int32_t& place = places_[static_cast<std::size_t>(buffer.tokens[i])];
    buffer.order[static_cast<std::size_t>(place++)] = static_cast<std::int32_t>(i);
  }
}

}  // namespace llmtrain
