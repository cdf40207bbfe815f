// SPDX-License-Identifier: Apache-2.0
/// vocab.json with merges.txt, or encoder.json with vocab.bpe.
#include <algorithm>
#include <set>

#include "json_view.hpp"
#include "llmtrain/base/error.hpp"
#include "llmtrain/tokenizer/tokenizer.hpp"
#include "parts.hpp"

namespace llmtrain {
namespace {

void read_merges(std::string_view text, const std::string& name, BpeParts& parts) {
  std::int64_t number = 0;
  while (!text.empty()) {
    ++number;
    const std::size_t size = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, size);
    text.remove_prefix(std::min(size + 1, text.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty() || line.starts_with("#version")) continue;
    const std::size_t space = line.find(' ');
    require(space != std::string_view::npos && line.find(' ', space + 1) == std::string_view::npos, ExitCode::bad_input,
            "{}:{}: '{}' is not two tokens with a space between", name, number, line.substr(0, 60));
    parts.merges.push_back(make_merge(parts.vocabulary, line.substr(0, space), line.substr(space + 1),
                                      parts.merges.size(), fmt::format("{}:{}", name, number)));
  }
}

/// These files do not tell special tokens from others: an end of document that no merge makes is one.
FileOptions with_ends(const FileOptions& given, const BpeParts& parts) {
  FileOptions options = given;
  std::set<std::int32_t> made;
  for (const Merge& merge : parts.merges) made.insert(merge.id);
  for (const std::string_view end : usual_ends_of_document) {
    const std::int32_t id = parts.vocabulary.id_of(end);
    if (id != Vocabulary::none && !made.contains(id)) options.special.emplace_back(end, id);
  }
  return options;
}

}  // namespace

BpeParts read_vocab_and_merges(std::string_view vocab, const std::string& vocab_name, std::string_view merges,
                               const std::string& merges_name, const FileOptions& options) {
  BpeParts parts{.name = vocab_name, .vocabulary = {}, .merges = {}, .pre_tokenizer = {{}, ""}, .added = {}};
  simdjson::dom::parser parser;
  add_vocabulary(parse_json(parser, vocab, vocab_name), parts.vocabulary);
  read_merges(merges, merges_name, parts);
  parts.pre_tokenizer = named_pattern(options.pattern.empty() ? "gpt2" : options.pattern);
  add_special(parts, with_ends(options, parts));
  return parts;
}

}  // namespace llmtrain
