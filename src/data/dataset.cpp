// SPDX-License-Identifier: Apache-2.0
/// Reads of samples, and the choice of data by a deck.
#include "llmtrain/data/dataset.hpp"

#include <algorithm>

#include "llmtrain/base/error.hpp"
#include "llmtrain/data/sidecar.hpp"

namespace llmtrain {

Dataset::Dataset(std::shared_ptr<const IndexedDataset> source, SequenceRange range, std::int64_t seq_len,
                 std::int64_t requested, std::int64_t seed)
    : source_(std::move(source)), seq_len_(seq_len), index_(*source_, range, seq_len, requested, seed) {}

void Dataset::sample(std::int64_t index, std::span<std::int32_t> out) const {
  LLMTRAIN_CHECK(index >= 0 && index < samples());
  LLMTRAIN_CHECK(static_cast<std::int64_t>(out.size()) == seq_len_ + 1);
  source_->require_unchanged();
  StreamPlace place = index_.place(index_.shuffle()[index] * seq_len_);
  for (; !out.empty(); ++place.position, place.offset = 0) {
    const std::int64_t sequence = index_.sequences()[place.position];
    const auto left = static_cast<std::size_t>(source_->length(sequence) - place.offset);
    const auto piece = out.first(std::min(out.size(), left));
    if (!piece.empty()) source_->read(sequence, place.offset, piece);
    out = out.subspan(piece.size());
  }
}

std::string Dataset::describe(std::int64_t index, std::int64_t offset) const {
  const StreamPlace place = index_.place(index_.shuffle()[index] * seq_len_ + offset);
  const std::int64_t sequence = index_.sequences()[place.position];
  return fmt::format("{}: sequence {} (document {}), token {}", source_->prefix(), sequence,
                     source_->document_of(sequence), place.offset);
}

namespace {

std::int64_t sequences_of(std::int64_t batches, std::int64_t global_batch, const char* key) {
  std::int64_t result = 0;
  require(!__builtin_mul_overflow(batches, global_batch, &result), ExitCode::configuration,
          "{}: {} x schedule.global_batch {} sequences are more than 2^63; lower one of them", key, batches,
          global_batch);
  return result;
}

void check_supported(const DataConfig& data) {
  require(!data.train.empty(), ExitCode::configuration,
          "data.train names no data set; give the prefix of a .bin/.idx pair (llmtrain preprocess writes them)");
  require(data.train.size() == 1, ExitCode::configuration,
          "data.train: blends of several data sets are not built yet; give one prefix");
  require(data.order == SampleOrder::megatron, ExitCode::configuration,
          "data.order: only megatron is built yet; write order: megatron");
  require(!data.document_mask, ExitCode::configuration, "data.document_mask is not built yet; leave it false");
}

/// What the model and data.tokenizer make of token ids.
struct Vocabulary {
  std::int64_t size;
  std::string tokenizer;  ///< digest; empty: not compared
};

std::shared_ptr<const IndexedDataset> open_source(const std::string& prefix, const Vocabulary& vocab) {
  auto source = std::make_shared<const IndexedDataset>(prefix);
  const auto sidecar = read_sidecar(prefix);
  // A sidecar left over from another set of this name says nothing about this one.
  if (!sidecar || sidecar->tokens != source->tokens()) return source;
  require(vocab.tokenizer.empty() || sidecar->tokenizer == vocab.tokenizer, ExitCode::configuration,
          "{}: was made with tokenizer {}, but data.tokenizer is {}: name the tokenizer that made the data, or "
          "preprocess them again",
          prefix, sidecar->tokenizer, vocab.tokenizer);
  require(sidecar->max_token < vocab.size, ExitCode::bad_input,
          "{}: holds token id {} (tokenizer {}), but the model's vocabulary is {}; the data were made with another "
          "tokenizer: check data.tokenizer and model.vocab",
          prefix, sidecar->max_token, sidecar->tokenizer, vocab.size);
  return source;
}

std::string too_small(const IndexedDataset& source, SequenceRange range, const char* part, std::int64_t seq_len) {
  return fmt::format("{}: its {} part, sequences {} to {} of {}, has {} tokens, but one sample takes seq_len + 1 = {}",
                     source.prefix(), part, range.begin, range.end, source.sequences(), count_tokens(source, range),
                     seq_len + 1);
}

/// The sets of data.valid, all of each.
std::vector<ValidSet> open_valid_sets(const std::vector<DataSource>& sources, std::int64_t seq_len,
                                      std::int64_t requested, std::int64_t seed, const Vocabulary& vocab) {
  const auto last_part = [](const std::string& prefix) { return prefix.substr(prefix.find_last_of('/') + 1); };
  std::vector<ValidSet> sets;
  for (const DataSource& source : sources) {
    const std::string name = last_part(source.prefix);
    const bool unique = std::count_if(sources.begin(), sources.end(),
                                      [&](const DataSource& other) { return last_part(other.prefix) == name; }) == 1;
    const auto data = open_source(source.prefix, vocab);
    const SequenceRange all{0, data->sequences()};
    require(count_tokens(*data, all) > seq_len, ExitCode::bad_input,
            "{}; add data to data.valid or lower model.seq_len", too_small(*data, all, "validation", seq_len));
    sets.push_back(
        {unique ? name : source.prefix, std::make_shared<const Dataset>(data, all, seq_len, requested, seed)});
  }
  return sets;
}

}  // namespace

TrainingData open_training_data(const DataConfig& data, const RunConfig& run, std::int64_t seq_len,
                                std::int64_t global_batch, std::int64_t vocab, const std::string& tokenizer) {
  check_supported(data);
  const Split split = data.valid.empty() ? parse_split(data.split) : Split{1, 0, 0};
  const std::int64_t needed = sequences_of(run.steps, global_batch, "run.steps");
  const std::int64_t requested = data.samples > 0 ? data.samples : needed;
  const std::int64_t evaluated = sequences_of(data.eval_batches, global_batch, "data.eval_batches");
  const std::int64_t seed = data.seed != 0 ? data.seed : run.seed;
  const bool evaluate = data.eval_every > 0 && evaluated > 0 && (!data.valid.empty() || split[1] > 0);

  TrainingData opened;
  const auto source = open_source(data.train[0].prefix, {vocab, tokenizer});
  const auto ranges = split_ranges(split, source->sequences());
  require(count_tokens(*source, ranges[0]) > seq_len, ExitCode::bad_input,
          "{}; add data, lower model.seq_len or change data.split", too_small(*source, ranges[0], "training", seq_len));
  opened.train = std::make_shared<const Dataset>(source, ranges[0], seq_len, requested, seed);
  if (opened.train->samples() < needed) {
    opened.warnings.push_back(
        fmt::format("data.samples {} gives {} samples, fewer than run.steps x schedule.global_batch = {}; they are "
                    "used again in the same order",
                    requested, opened.train->samples(), needed));
  }
  if (!evaluate) return opened;

  if (!data.valid.empty()) {
    opened.valid = open_valid_sets(data.valid, seq_len, evaluated, seed, {vocab, tokenizer});
  } else if (count_tokens(*source, ranges[1]) > seq_len) {
    opened.valid = {{"valid", std::make_shared<const Dataset>(source, ranges[1], seq_len, evaluated, seed)}};
  } else {
    opened.warnings.push_back(too_small(*source, ranges[1], "validation", seq_len) +
                              "; evaluation is off: give it a larger share of data.split, or set data.valid");
  }
  return opened;
}

}  // namespace llmtrain
