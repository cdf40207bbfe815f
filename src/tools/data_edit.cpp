// SPDX-License-Identifier: Apache-2.0
/// `llmtrain data merge|split`: new sets of old ones.
#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <iterator>
#include <memory>
#include <optional>

#include <fmt/format.h>

#include "data_commands.hpp"
#include "llmtrain/base/error.hpp"
#include "llmtrain/base/text.hpp"
#include "llmtrain/data/indexed_dataset_writer.hpp"
#include "llmtrain/data/prompt_lengths.hpp"
#include "llmtrain/data/sidecar.hpp"
#include "llmtrain/data/split.hpp"

namespace llmtrain {
namespace {

/// Publishes the set, with its lengths of prompts if it has them and what is known of its origin; a sidecar of an older set of this name goes.
void publish_set(const std::string& prefix, IndexedDatasetWriter& writer, IndexedDatasetWriter* prompts,
                 std::optional<Sidecar> sidecar) {
  writer.finish();
  std::vector<OutputFile*> files;
  std::unique_ptr<OutputFile> json;
  if (sidecar) {
    sidecar->documents = writer.documents();
    sidecar->sequences = writer.sequences();
    sidecar->tokens = writer.tokens();
    sidecar->max_token = writer.max_token();
    json = std::make_unique<OutputFile>(prefix + ".json");
    const std::string text = to_json(*sidecar);
    json->append(std::as_bytes(std::span(text)));
    files.push_back(json.get());
  } else if (read_sidecar(prefix)) {
    std::filesystem::remove(prefix + ".json");
  }
  if (prompts != nullptr) {
    prompts->finish();
    for (OutputFile* file : prompts->files()) files.push_back(file);
  }
  for (OutputFile* file : writer.files()) files.push_back(file);
  publish(files);
  fmt::print("{}: {} documents, {} sequences, {} tokens\n", prefix, grouped(writer.documents()),
             grouped(writer.sequences()), grouped(writer.tokens()));
}

void require_output(const DataRequest& request, const char* action) {
  require(!request.output.empty(), ExitCode::usage, "data {}: --output is missing; see llmtrain data --help", action);
}

void require_other(const std::string& output, const std::string& input) {
  require(output != input, ExitCode::usage, "data: {} is read and cannot be the output too; choose another --output",
          input);
}

/// What the sets have in common, counts added up; nothing where one has no sidecar. Throws Error(bad_input) for sets of
/// different tokenizers.
std::optional<Sidecar> joined_sidecar(const std::vector<std::string>& prefixes) {
  std::optional<Sidecar> joined;
  bool complete = true;
  for (const std::string& prefix : prefixes) {
    const auto one = read_sidecar(prefix);
    complete = complete && one.has_value();
    if (!one) continue;
    if (!joined) {
      joined = one;
      continue;
    }
    require(
        one->tokenizer == joined->tokenizer && one->vocab == joined->vocab, ExitCode::bad_input,
        "{}: was made with tokenizer {} (vocabulary {}), but the sets before it with {} ({}): ids would change their "
        "meaning; preprocess them again",
        prefix, one->tokenizer, one->vocab, joined->tokenizer, joined->vocab);
    joined->inputs.insert(joined->inputs.end(), one->inputs.begin(), one->inputs.end());
    if (one->eod != joined->eod) joined->eod = -1;
    if (one->prompt_key != joined->prompt_key) joined->prompt_key.clear();
    joined->empty_documents += one->empty_documents;
    joined->repeated_keys += one->repeated_keys;
    joined->replaced_lines += one->replaced_lines;
    joined->skipped_lines += one->skipped_lines;
    joined->text_bytes += one->text_bytes;
  }
  return complete ? joined : std::nullopt;
}

void copy_documents(const IndexedDataset& set, std::int64_t begin, std::int64_t end, IndexedDatasetWriter& writer) {
  std::vector<std::int32_t> tokens;
  for (std::int64_t d = begin; d < end; ++d) {
    for (std::int64_t s = set.first_sequence(d); s < set.first_sequence(d + 1); ++s) {
      tokens.resize(static_cast<std::size_t>(set.length(s)));
      set.read(s, 0, tokens);
      writer.add_sequence(tokens);
    }
    writer.end_document();
  }
}

/// Whether all sets have lengths of prompts, which are then treated as the sets are. Throws Error(bad_input) where only some
/// have.
bool have_prompts(const std::vector<std::string>& prefixes) {
  if (std::ranges::none_of(prefixes, has_prompts)) return false;
  const auto without = std::ranges::find_if_not(prefixes, has_prompts);
  if (without == prefixes.end()) return true;
  fail(ExitCode::bad_input,
       "data merge: {} has no {}.idx, but other sets have their lengths of prompts; preprocess it with --prompt-key",
       *without, prompts_of(*without));
}

/// The sets one after the other, in a writer that is not published yet.
std::unique_ptr<IndexedDatasetWriter> join(const std::string& output, const std::vector<std::string>& prefixes) {
  std::vector<std::unique_ptr<IndexedDataset>> sets;
  TokenType type = TokenType::uint16;
  for (const std::string& prefix : prefixes) {
    require_other(output, prefix);
    sets.push_back(std::make_unique<IndexedDataset>(prefix));
    if (sets.back()->type() == TokenType::int32) type = TokenType::int32;
  }
  auto writer = std::make_unique<IndexedDatasetWriter>(output, type);
  for (const auto& set : sets) writer->append(*set);
  return writer;
}

}  // namespace

int data_merge(const DataRequest& request) {
  require_output(request, "merge");
  const std::optional<Sidecar> sidecar = joined_sidecar(request.words);
  std::unique_ptr<IndexedDatasetWriter> prompts;
  if (have_prompts(request.words)) {
    std::vector<std::string> prefixes;
    std::transform(request.words.begin(), request.words.end(), std::back_inserter(prefixes), prompts_of);
    prompts = join(prompts_of(request.output), prefixes);
  }
  const auto writer = join(request.output, request.words);
  publish_set(request.output, *writer, prompts.get(), sidecar);
  return 0;
}

int data_split(const DataRequest& request) {
  require_output(request, "split");
  const std::string& prefix = request.words.front();
  const IndexedDataset set(prefix);
  const auto ranges = split_ranges(parse_split(request.shares), set.documents());
  const auto sidecar = read_sidecar(prefix);
  std::optional<IndexedDataset> prompts;
  if (have_prompts(request.words)) prompts.emplace(prompts_of(prefix));
  constexpr std::array names = {"train", "valid", "test"};
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (ranges[i].size() == 0) continue;
    const std::string output = request.output + "_" + names[i];
    require_other(output, prefix);
    IndexedDatasetWriter writer(output, set.type());
    copy_documents(set, ranges[i].begin, ranges[i].end, writer);
    std::optional<IndexedDatasetWriter> prompt_writer;
    if (prompts) {
      prompt_writer.emplace(prompts_of(output), TokenType::int32);
      copy_documents(*prompts, ranges[i].begin, ranges[i].end, *prompt_writer);
    }
    std::optional<Sidecar> part = sidecar;
    if (part) {
      // Only whole sets know these.
      part->repeated_keys = part->replaced_lines = part->skipped_lines = part->text_bytes = 0;
      part->empty_documents = 0;
      for (std::int64_t d = ranges[i].begin; d < ranges[i].end; ++d) {
        part->empty_documents += set.first_sequence(d) == set.first_sequence(d + 1) ? 1 : 0;
      }
    }
    publish_set(output, writer, prompt_writer ? &*prompt_writer : nullptr, part);
  }
  return 0;
}

}  // namespace llmtrain
