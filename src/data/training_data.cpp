// SPDX-License-Identifier: Apache-2.0
/// The choice of data by a deck: sets, their parts, blends.
#include "llmtrain/data/training_data.hpp"

#include <algorithm>
#include <utility>

#include "llmtrain/base/error.hpp"
#include "llmtrain/data/blend.hpp"
#include "llmtrain/data/sidecar.hpp"
#include "llmtrain/data/source_dataset.hpp"
#include "llmtrain/data/split.hpp"

namespace llmtrain {

namespace {

std::int64_t sequences_of(std::int64_t batches, std::int64_t global_batch, const char* key) {
  std::int64_t result = 0;
  require(!__builtin_mul_overflow(batches, global_batch, &result), ExitCode::configuration,
          "{}: {} x schedule.global_batch {} sequences are more than 2^63; lower one of them", key, batches,
          global_batch);
  return result;
}

/// What the deck says of every set.
struct Reading {
  std::int64_t vocab;
  std::string tokenizer;  ///< digest; empty: not compared
  bool mask_prompt;
};

struct Source {
  std::shared_ptr<const IndexedDataset> set;
  std::shared_ptr<const PromptLengths> prompts;  ///< of data.mask_prompt
};

void check_sidecar(const IndexedDataset& set, const Reading& reading) {
  const std::string& prefix = set.prefix();
  const auto sidecar = read_sidecar(prefix);
  // A sidecar left over from another set of this name says nothing about this one.
  if (!sidecar || sidecar->tokens != set.tokens()) return;
  require(reading.tokenizer.empty() || sidecar->tokenizer == reading.tokenizer, ExitCode::configuration,
          "{}: was made with tokenizer {}, but data.tokenizer is {}: name the tokenizer that made the data, or "
          "preprocess them again",
          prefix, sidecar->tokenizer, reading.tokenizer);
  require(sidecar->max_token < reading.vocab, ExitCode::bad_input,
          "{}: holds token id {} (tokenizer {}), but the model's vocabulary is {}; the data were made with another "
          "tokenizer: check data.tokenizer and model.vocab",
          prefix, sidecar->max_token, sidecar->tokenizer, reading.vocab);
}

Source open_source(const std::string& prefix, const Reading& reading) {
  Source source{std::make_shared<const IndexedDataset>(prefix), nullptr};
  check_sidecar(*source.set, reading);
  if (reading.mask_prompt) source.prompts = std::make_shared<const PromptLengths>(*source.set);
  return source;
}

std::string too_small(const IndexedDataset& source, SequenceRange range, const char* part, std::int64_t seq_len) {
  return fmt::format("{}: its {} part, sequences {} to {} of {}, has {} tokens, but one sample takes seq_len + 1 = {}",
                     source.prefix(), part, range.begin, range.end, source.sequences(), count_tokens(source, range),
                     seq_len + 1);
}

/// How a deck cuts and orders samples.
struct Cut {
  std::int64_t seq_len;
  SampleOrder order;
  std::int64_t seed;
  std::shared_ptr<IndexMemory> memory;
};

/// A set of a blend: its source, the part in question, and its weight (0: none given).
struct Share {
  Source source;
  SequenceRange range;
  double weight;
};

bool is_large_enough(const Share& share, const Cut& cut) {
  return count_tokens(*share.source.set, share.range) > cut.seq_len;
}

/// `number` tells the sets of a blend apart.
std::shared_ptr<const Dataset> make_set(const Share& share, const Cut& cut, std::int64_t requested,
                                        std::int64_t number = 0) {
  const Source& source = share.source;
  const auto with = [&](SourceDataset::Order order) {
    return std::make_shared<const SourceDataset>(source.set, cut.seq_len, std::move(order), source.prompts);
  };
  return cut.order == SampleOrder::megatron
             ? with(SampleIndex(*source.set, share.range, cut.seq_len, requested, cut.seed, cut.memory))
             : with(ShuffledOrder(*source.set, share.range, cut.seq_len, requested, cut.seed, number));
}

/// A blend of about `requested` samples by weights, or of one pass over each set where no weights are given.
std::shared_ptr<const Dataset> make_blend(const std::vector<Share>& shares, const Cut& cut, std::int64_t requested) {
  const bool weighted = shares.front().weight > 0;
  if (shares.size() == 1 && !weighted) return make_set(shares.front(), cut, requested);

  std::vector<double> weights;
  for (const Share& share : shares) weights.push_back(share.weight);
  if (weighted) weights = normalised(weights);
  std::vector<std::shared_ptr<const Dataset>> sets;
  std::vector<std::int64_t> drawn;
  for (std::size_t i = 0; i < shares.size(); ++i) {
    const std::int64_t built = weighted ? samples_to_build(requested, weights[i]) : 0;  // 0: one pass
    sets.push_back(make_set(shares[i], cut, built, static_cast<std::int64_t>(i)));
    drawn.push_back(weighted ? samples_to_use(requested, weights[i]) : sets.back()->samples());
  }
  std::int64_t size = 0;
  for (const std::int64_t samples : drawn) size += samples;
  if (!weighted) {
    size = std::min(size, requested);
    weights.assign(drawn.begin(), drawn.end());
  }
  if (cut.order == SampleOrder::megatron) {
    return std::make_shared<const BlendedDataset>(std::move(sets), BlendIndex(weights, size, cut.memory));
  }
  return std::make_shared<const BlendedDataset>(std::move(sets), ShuffledBlend(drawn, cut.seed));
}

/// The sets of data.valid, all of each.
std::vector<ValidSet> open_valid_sets(const std::vector<DataSource>& sources, const Cut& cut, std::int64_t requested,
                                      const Reading& reading) {
  const auto last_part = [](const std::string& prefix) { return prefix.substr(prefix.find_last_of('/') + 1); };
  std::vector<ValidSet> sets;
  for (const DataSource& source : sources) {
    const std::string name = last_part(source.prefix);
    const bool unique = std::count_if(sources.begin(), sources.end(),
                                      [&](const DataSource& other) { return last_part(other.prefix) == name; }) == 1;
    const Source data = open_source(source.prefix, reading);
    const Share all{data, {0, data.set->sequences()}, 0};
    require(is_large_enough(all, cut), ExitCode::bad_input, "{}; add data to data.valid or lower model.seq_len",
            too_small(*data.set, all.range, "validation", cut.seq_len));
    sets.push_back({unique ? name : source.prefix, make_set(all, cut, requested)});
  }
  return sets;
}

/// The validation parts of the training sets, those left out that are too small for one sample.
void add_valid_part(TrainingData& opened, const std::vector<Share>& shares, const Cut& cut, std::int64_t requested) {
  std::vector<Share> usable;
  for (const Share& share : shares) {
    if (is_large_enough(share, cut)) {
      usable.push_back(share);
    } else if (shares.size() > 1) {
      opened.warnings.push_back(too_small(*share.source.set, share.range, "validation", cut.seq_len) +
                                "; it is left out of the evaluation");
    }
  }
  if (!usable.empty()) {
    opened.valid = {{"valid", make_blend(usable, cut, requested)}};
    return;
  }
  opened.warnings.push_back(too_small(*shares.front().source.set, shares.front().range, "validation", cut.seq_len) +
                            "; evaluation is off: give it a larger share of data.split, or set data.valid");
}

}  // namespace

TrainingData open_training_data(const DataConfig& data, const RunConfig& run, std::int64_t seq_len,
                                std::int64_t global_batch, std::int64_t vocab, const std::string& tokenizer,
                                std::shared_ptr<IndexMemory> memory) {
  require(!data.train.empty(), ExitCode::configuration,
          "data.train names no data set; give the prefix of a .bin/.idx pair (llmtrain preprocess writes them)");
  const Split split = data.valid.empty() ? parse_split(data.split) : Split{1, 0, 0};
  const std::int64_t needed = sequences_of(run.steps, global_batch, "run.steps");
  const std::int64_t requested = data.samples > 0 ? data.samples : needed;
  const std::int64_t evaluated = sequences_of(data.eval_batches, global_batch, "data.eval_batches");
  const bool builds = memory == nullptr;
  if (builds) memory = std::make_shared<IndexMemory>();
  const Cut cut{seq_len, data.order, data.seed != 0 ? data.seed : run.seed, memory};
  const Reading reading{vocab, tokenizer, data.mask_prompt};
  const bool evaluate = data.eval_every > 0 && evaluated > 0 && (!data.valid.empty() || split[1] > 0);

  TrainingData opened;
  std::vector<Share> train, valid;
  for (const DataSource& set : data.train) {
    const Source source = open_source(set.prefix, reading);
    const auto ranges = split_ranges(split, source.set->sequences());
    train.push_back({source, ranges[0], set.weight});
    valid.push_back({source, ranges[1], set.weight});
    require(is_large_enough(train.back(), cut), ExitCode::bad_input,
            "{}; add data, lower model.seq_len or change data.split",
            too_small(*source.set, ranges[0], "training", seq_len));
  }
  opened.train = make_blend(train, cut, requested);
  if (opened.train->samples() < needed) {
    const std::string asked = data.samples > 0 ? fmt::format("data.samples {}", requested)
                                               : fmt::format("one pass over the {} sets of data.train", train.size());
    opened.warnings.push_back(fmt::format(
        "{} gives {} samples, fewer than run.steps x schedule.global_batch = {}; they are used again in the "
        "same order",
        asked, opened.train->samples(), needed));
  }
  if (evaluate && !data.valid.empty()) {
    opened.valid = open_valid_sets(data.valid, cut, evaluated, reading);
  } else if (evaluate) {
    add_valid_part(opened, valid, cut, evaluated);
  }
  if (builds) memory->build();
  return opened;
}

}  // namespace llmtrain
