// SPDX-License-Identifier: Apache-2.0
/// Vocabularies, merges, special tokens and patterns of any file kind.
#include "parts.hpp"

#include <sys/stat.h>
#include <algorithm>

#include "byte_alphabet.hpp"
#include "llmtrain/base/error.hpp"
#include "llmtrain/base/files.hpp"

namespace llmtrain {

OddTokens add_vocabulary(const JsonView& vocab, Vocabulary& vocabulary) {
  OddTokens odd;
  for (const auto& [token, value] : vocab.object()) {
    std::int64_t id = 0;
    if (value.get(id) != simdjson::SUCCESS || id < 0 || id > Vocabulary::largest_id)
      vocab.refuse(fmt::format("the id of '{}' is no whole number from 0 to {}", token, Vocabulary::largest_id));
    const auto bytes = bytes_of_characters(token);
    const bool added = !token.empty() && vocabulary.add(static_cast<std::int32_t>(id),
                                                        bytes.value_or(std::string(token)), bytes.has_value());
    const bool fresh = added && (bytes.has_value() || odd.emplace(token, static_cast<std::int32_t>(id)).second);
    if (fresh) continue;
    vocab.refuse(token.empty() ? "holds an empty token"
                 : vocabulary.holds(id) && !added
                     ? fmt::format("'{}' has id {}, which another token has, or is given twice", token, id)
                     : fmt::format("'{}' is given twice", token));
  }
  return odd;
}

Merge make_merge(const Vocabulary& vocabulary, std::string_view left, std::string_view right, std::size_t rank,
                 const std::string& place) {
  const auto id_of = [&](const std::string& characters) {
    const auto bytes = bytes_of_characters(characters);
    const std::int32_t id = bytes.has_value() && !bytes->empty() ? vocabulary.id_of(*bytes) : Vocabulary::none;
    require(id != Vocabulary::none, ExitCode::bad_input, "{}: '{}' '{}': the vocabulary has no token '{}'", place, left,
            right, characters);
    return id;
  };
  const std::string first(left), second(right);
  return {id_of(first), id_of(second), static_cast<std::uint32_t>(rank), id_of(first + second)};
}

void add_special(BpeParts& parts, const FileOptions& options) {
  for (const auto& [text, id] : options.special) {
    require(!text.empty() && id >= 0 && id <= Vocabulary::largest_id, ExitCode::configuration,
            "the tokenizer's special '{}': {} is not a text and an id from 0 to {}", text, id, Vocabulary::largest_id);
    AddedToken token{.content = text, .id = static_cast<std::int32_t>(id), .special = true};
    const auto same = [&](const AddedToken& other) { return other.content == token.content; };
    const auto added = std::find_if(parts.added.begin(), parts.added.end(), same);
    const std::int32_t known = added != parts.added.end() ? added->id : parts.vocabulary.id_of(text);
    require(known == Vocabulary::none || known == token.id, ExitCode::configuration,
            "the tokenizer's special '{}': {}, but {} gives it id {}", text, id, parts.name, known);
    if (known == Vocabulary::none) {
      require(parts.vocabulary.add(token.id, text, false), ExitCode::configuration,
              "the tokenizer's special '{}': id {} belongs to another token of {}", text, id, parts.name);
    }
    if (added == parts.added.end()) {
      parts.added.push_back(std::move(token));
    } else {
      added->special = true;
    }
  }
}

PreTokenizer named_pattern(const std::string& pattern) {
  const KnownPattern* known = find_pattern_name(pattern);
  if (known == nullptr) known = find_pattern_regex(pattern, false);
  std::vector<SplitStep> steps;
  if (known != nullptr) {
    steps.push_back({known->scan});
    return {std::move(steps), fmt::format("pattern {}", known->regex)};
  }
  const bool is_word =
      std::all_of(pattern.begin(), pattern.end(), [](unsigned char c) { return std::isalnum(c) != 0; });
  try {
    require(!is_word, ExitCode::configuration, "unknown pattern '{}' of the tokenizer; it may be {} or an expression",
            pattern, pattern_names());
    steps.push_back({Regex(pattern, RegexSyntax::rust), SplitBehavior::removed, true});
  } catch (const std::invalid_argument& error) {
    fail(ExitCode::configuration, "the tokenizer's pattern '{}' cannot be used: {}", pattern, error.what());
  }
  return {std::move(steps), fmt::format("pattern {}", pattern)};
}

std::string read_tokenizer_file(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) == 0) {
    require(!S_ISDIR(status.st_mode), ExitCode::missing_input, "cannot read {}: it is a folder", path);
    require(status.st_size <= largest_tokenizer_file, ExitCode::bad_input,
            "{}: {} bytes are too many for a tokenizer file (at most {})", path, status.st_size,
            largest_tokenizer_file);
  }
  return read_file(path);
}

}  // namespace llmtrain
