// SPDX-License-Identifier: Apache-2.0
/// A trie walked from each place where a token may begin.
#include "added_tokens.hpp"

#include <algorithm>

#include "unicode.hpp"

namespace llmtrain {
namespace {

std::uint64_t edge(std::uint32_t node, char byte) {
  return std::uint64_t{node} << 8 | static_cast<unsigned char>(byte);
}

bool begins_with(std::string_view text, std::uint8_t mask) {
  return !text.empty() && (CharClasses::instance().at(text.data(), text.data() + text.size()).classes & mask) != 0;
}

/// The last character of the text; the text is not empty.
std::string_view last_character(std::string_view text) {
  std::size_t begin = text.size() - 1;
  while (begin > 0 && text.size() - begin < 4 && (text[begin] & 0xC0) == 0x80) --begin;
  const std::string_view character = text.substr(begin);
  const bool whole = utf8_bytes(character.data(), character.data() + character.size()) == character.size();
  return whole ? character : text.substr(text.size() - 1);
}

bool ends_with(std::string_view text, std::uint8_t mask) {
  return !text.empty() && begins_with(last_character(text), mask);
}

}  // namespace

TokenFinder::TokenFinder(std::vector<AddedToken> tokens) : tokens_(std::move(tokens)) {
  for (std::size_t index = 0; index < tokens_.size(); ++index) {
    std::uint32_t node = 0;
    for (const char byte : tokens_[index].content) {
      const auto [found, fresh] = edges_.emplace(edge(node, byte), static_cast<std::uint32_t>(token_at_.size()));
      if (fresh) token_at_.push_back(-1);
      node = found->second;
    }
    token_at_[node] = static_cast<std::int32_t>(index);
    first_[static_cast<unsigned char>(tokens_[index].content[0])] = true;
  }
}

TokenFinder::Match TokenFinder::next(std::string_view text, std::size_t from) const {
  for (std::size_t begin = from; begin < text.size(); ++begin) {
    if (!first_[static_cast<unsigned char>(text[begin])]) continue;
    Match longest;
    std::uint32_t node = 0;
    for (std::size_t at = begin; at < text.size(); ++at) {
      const auto found = edges_.find(edge(node, text[at]));
      if (found == edges_.end()) break;
      node = found->second;
      if (token_at_[node] >= 0) longest = {&tokens_[static_cast<std::size_t>(token_at_[node])], begin, at + 1};
    }
    if (longest.token != nullptr) return longest;
  }
  return {};
}

void TokenFinder::cut(std::string_view text, bool special_too, std::vector<Segment>& segments) const {
  segments.clear();
  std::size_t done = 0;  // everything before is in segments
  Match match;
  for (std::size_t from = 0; (match = next(text, from)).token != nullptr; from = match.end) {
    const AddedToken& token = *match.token;
    if ((token.special && !special_too) || match.end <= done) continue;
    const std::string_view before = text.substr(0, match.begin), behind = text.substr(match.end);
    if (token.single_word && (ends_with(before, word) || begins_with(behind, word))) continue;
    std::size_t begin = match.begin, end = match.end;
    while (token.lstrip && begin > done && ends_with(text.substr(0, begin), space))
      begin -= last_character(text.substr(0, begin)).size();
    begin = std::max(begin, done);
    while (token.rstrip && begins_with(text.substr(end), space))
      end += CharClasses::instance().at(text.data() + end, text.data() + text.size()).bytes;
    if (begin > done) segments.push_back({done, begin, Segment::text_id});
    segments.push_back({begin, end, token.id});
    done = end;
  }
  if (done < text.size()) segments.push_back({done, text.size(), Segment::text_id});
}

}  // namespace llmtrain
