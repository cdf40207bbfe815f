// SPDX-License-Identifier: Apache-2.0
/// Rank files of tiktoken: a token in base64 and its rank a line; any two neighbours that make a token may merge.
#include <algorithm>
#include <charconv>

#include "byte_alphabet.hpp"
#include "llmtrain/base/error.hpp"
#include "parts.hpp"

namespace llmtrain {
namespace {

constexpr std::size_t longest_token = 1024;  // bytes; making merges takes its square
constexpr std::int64_t llama3_ranks = 128000;

int base64_value(char c) {
  if (c >= 'A' && c <= 'Z') return c - 'A';
  if (c >= 'a' && c <= 'z') return c - 'a' + 26;
  if (c >= '0' && c <= '9') return c - '0' + 52;
  return c == '+' ? 62 : c == '/' ? 63 : -1;
}

/// False if `text` is not base64 in groups of four.
bool decode_base64(std::string_view text, std::string& bytes) {
  bytes.clear();
  if (text.empty() || text.size() % 4 != 0) return false;
  const std::size_t padding = text.ends_with("==") ? 2 : text.ends_with("=") ? 1 : 0;
  unsigned bits = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const int value = i < text.size() - padding ? base64_value(text[i]) : 0;
    if (value < 0) return false;
    bits = (bits << 6 | static_cast<unsigned>(value)) & 0xFFFFFF;
    if (i % 4 == 3) {
      for (const int shift : {16, 8, 0}) bytes.push_back(static_cast<char>(bits >> shift & 0xFF));
    }
  }
  bytes.resize(bytes.size() - padding);
  return true;
}

/// False unless the line is a token and a rank.
bool read_line(std::string_view line, std::string& token, std::int64_t& rank) {
  const std::size_t space = line.find(' ');
  if (space == std::string_view::npos || !decode_base64(line.substr(0, space), token)) return false;
  const std::string_view number = line.substr(space + 1);
  const auto [stop, error] = std::from_chars(number.data(), number.data() + number.size(), rank);
  return error == std::errc{} && stop == number.data() + number.size();
}

void read_ranks(std::string_view text, BpeParts& parts) {
  std::string token;
  std::int64_t number = 0;
  while (!text.empty()) {
    ++number;
    const std::size_t size = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, size);
    text.remove_prefix(std::min(size + 1, text.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty()) continue;
    std::int64_t rank = 0;
    require(read_line(line, token, rank), ExitCode::bad_input,
            "{}:{}: '{}' is not a token in base64, a space and its rank", parts.name, number, line.substr(0, 60));
    require(rank >= 0 && rank <= Vocabulary::largest_id && token.size() <= longest_token, ExitCode::bad_input,
            "{}:{}: a rank may be 0 to {} and a token have {} bytes; here are {} and {}", parts.name, number,
            Vocabulary::largest_id, longest_token, rank, token.size());
    require(parts.vocabulary.add(static_cast<std::int32_t>(rank), token, true), ExitCode::bad_input,
            "{}:{}: the rank {} or its token '{}' stands on an earlier line too", parts.name, number, rank,
            characters_of_bytes(token));
  }
}

void make_merges(BpeParts& parts) {
  const Vocabulary& vocabulary = parts.vocabulary;
  for (std::int32_t id = 0; id < vocabulary.size(); ++id) {
    if (!vocabulary.holds(id)) continue;
    const std::string_view token = vocabulary.bytes_of(id);
    for (std::size_t cut = 1; cut < token.size(); ++cut) {
      const std::int32_t left = vocabulary.id_of(token.substr(0, cut));
      if (left == Vocabulary::none) continue;
      const std::int32_t right = vocabulary.id_of(token.substr(cut));
      if (right != Vocabulary::none) parts.merges.push_back({left, right, static_cast<std::uint32_t>(id), id});
    }
  }
}

/// Llama 3 names 256 special tokens behind its ranks, most of them reserved.
FileOptions llama3_options(const FileOptions& given) {
  FileOptions options = given;
  if (options.pattern.empty()) options.pattern = "llama3";
  std::vector<std::string> names{"<|begin_of_text|>", "<|end_of_text|>"};
  int reserved = 0;
  const auto reserve = [&](std::size_t until) {
    while (names.size() < until) names.push_back(fmt::format("<|reserved_special_token_{}|>", reserved++));
  };
  reserve(6);
  names.insert(names.end(), {"<|start_header_id|>", "<|end_header_id|>"});
  reserve(9);
  names.push_back("<|eot_id|>");
  reserve(256);
  for (std::size_t i = 0; i < names.size(); ++i) {
    const std::int64_t id = llama3_ranks + static_cast<std::int64_t>(i);
    const bool renamed = std::any_of(given.special.begin(), given.special.end(),
                                     [&](const auto& own) { return own.second == id || own.first == names[i]; });
    if (!renamed) options.special.emplace_back(names[i], id);
  }
  return options;
}

}  // namespace

bool is_rank_file(std::string_view text) {
  std::string_view line = text.substr(0, std::min(text.find('\n'), text.size()));
  if (line.ends_with('\r')) line.remove_suffix(1);
  std::string token;
  std::int64_t rank = 0;
  return read_line(line, token, rank);
}

BpeParts read_rank_file(std::string_view text, const std::string& name, const FileOptions& given) {
  BpeParts parts{
      .name = name, .vocabulary = {}, .merges = {}, .whole_words = true, .pre_tokenizer = {{}, ""}, .added = {}};
  read_ranks(text, parts);
  const bool llama3 = parts.vocabulary.tokens() == llama3_ranks && parts.vocabulary.size() == llama3_ranks;
  const FileOptions options = llama3 ? llama3_options(given) : given;
  require(
      !options.pattern.empty(), ExitCode::configuration,
      "{} has {} ranks and does not say how text is split: write the tokenizer as {{file: {}, pattern: P}}, P being {} "
      "or an expression",
      name, parts.vocabulary.tokens(), name, pattern_names());
  parts.pre_tokenizer = named_pattern(options.pattern);
  make_merges(parts);
  add_special(parts, options);
  return parts;
}

}  // namespace llmtrain
