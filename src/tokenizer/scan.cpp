// SPDX-License-Identifier: Apache-2.0
/// The scanners: each function returns the end of the first alternative of its pattern that matches at `at`.
#include "llmtrain/tokenizer/scan.hpp"

#include <algorithm>
#include <array>

#include "unicode.hpp"

namespace llmtrain {
namespace {

constexpr std::uint8_t any_class = letter | number | space;  ///< a character of none is [^\s\p{L}\p{N}]

bool is_newline(char c) { return c == '\r' || c == '\n'; }

/// What the patterns have in common. Each function takes and gives places in the text that ends at `end`.
struct Text {
  const char* end;
  const CharClasses& classes = CharClasses::instance();

  Char at(const char* place) const { return classes.at(place, end); }
  bool is(const char* place, std::uint8_t mask) const { return place != end && (at(place).classes & mask) != 0; }
  bool is_other(const char* place) const { return place != end && (at(place).classes & any_class) == 0; }

  /// Behind all characters that have one of the classes of `mask`, but at most `most` of them.
  const char* behind(const char* place, std::uint8_t mask) const {
    for (;;) {
      while (place != end && (classes.of_byte(*place) & mask) != 0) ++place;
      if (place == end || classes.of_byte(*place) != not_ascii) return place;
      const Char c = at(place);
      if ((c.classes & mask) == 0) return place;
      place += c.bytes;
    }
  }
  const char* behind(const char* place, std::uint8_t mask, int most) const {
    for (; most > 0 && is(place, mask); --most) place += at(place).bytes;
    return place;
  }
  const char* behind_others(const char* place) const {
    while (is_other(place)) place += at(place).bytes;
    return place;
  }
  template <class Accept>
  const char* behind_if(const char* place, Accept accept) const {
    return std::find_if_not(place, end, accept);
  }

  /// 's 't 're 've 'm 'll 'd; nullptr if there is none. Without regard to case, U+017F is an s too.
  const char* contraction(const char* place, bool any_case) const {
    if (place == end || *place != '\'') return nullptr;
    const auto letter_at = [&](const char* p) -> char {
      if (p >= end) return '\0';
      return any_case && *p >= 'A' && *p <= 'Z' ? static_cast<char>(*p | 0x20) : *p;
    };
    const char first = letter_at(place + 1);
    if (first == 's' || first == 't' || first == 'm' || first == 'd') return place + 2;
    const char second = letter_at(place + 2);
    if ((first == 'r' || first == 'v') && second == 'e') return place + 3;
    if (first == 'l' && second == 'l') return place + 3;
    if (any_case && std::string_view(place + 1, end).starts_with("\u017F")) return place + 3;
    return nullptr;
  }

  /// `\s+(?!\S)|\s+`: leaves the last character of white space to what follows, if there is more than one.
  const char* white_space(const char* place) const {
    const char* run = behind(place, space);
    if (run == end) return run;
    const char* last = place;
    for (const char* next = place; next != run; next += at(next).bytes) last = next;
    return last == place ? run : last;
  }

  /// `\s*[\r\n]+|\s+(?!\S)|\s+`
  const char* lines_or_white_space(const char* place) const {
    const char* run = behind(place, space);
    for (const char* last = run; last != place; --last) {
      if (is_newline(last[-1])) return last;
    }
    return white_space(place);
  }

  /// ` ?[^\s\p{L}\p{N}]+`; nullptr if there is none.
  const char* others(const char* place) const {
    const char* first = *place == ' ' ? place + 1 : place;
    return is_other(first) ? behind_others(first) : nullptr;
  }
};

/// 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
const char* scan_gpt2(const char* at, const char* end) {
  const Text text{end};
  if (const char* stop = text.contraction(at, false)) return stop;
  const char* first = *at == ' ' && at + 1 != end ? at + 1 : at;
  const std::uint8_t classes = text.at(first).classes;
  if ((classes & letter) != 0) return text.behind(first, letter);
  if ((classes & number) != 0) return text.behind(first, number);
  if ((classes & space) == 0) return text.behind_others(first);
  return text.white_space(at);
}

/// The optional character before letters: [^\r\n\p{L}\p{N}]?
const char* behind_prefix(const Text& text, const char* at) {
  const Char c = text.at(at);
  return is_newline(*at) || (c.classes & (letter | number)) != 0 ? at : at + c.bytes;
}

/// (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,digits}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
/// `whole_end`: with \s++$ before \s*[\r\n], white space at the end of the text is one piece.
template <int digits, bool whole_end>
const char* scan_cl100k(const char* at, const char* end) {
  const Text text{end};
  if (const char* stop = text.contraction(at, true)) return stop;
  if (const char* first = behind_prefix(text, at); text.is(first, letter)) return text.behind(first, letter);
  if (text.is(at, number)) return text.behind(at, number, digits);
  if (const char* stop = text.others(at)) return text.behind_if(stop, is_newline);
  if (whole_end && text.behind(at, space) == end) return end;
  return text.lines_or_white_space(at);
}

/// [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+; nullptr if there is none.
const char* capitals_then_lower(const Text& text, const char* at) {
  const char* last = nullptr;  // behind the last capital that counts as lower too
  for (; text.is(at, upper); at += text.at(at).bytes) {
    if (text.is(at, lower)) last = at + text.at(at).bytes;
  }
  return text.is(at, lower) ? text.behind(at, lower) : last;
}

/// [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*; nullptr if there is none.
const char* capitals_maybe_lower(const Text& text, const char* at) {
  return text.is(at, upper) ? text.behind(text.behind(at, upper), lower) : nullptr;
}

/// Words with an optional character before and a contraction behind them, first those that end in lower case, then
/// \p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+
const char* scan_o200k(const char* at, const char* end) {
  const Text text{end};
  const char* first = behind_prefix(text, at);
  for (const auto word_of : {capitals_then_lower, capitals_maybe_lower}) {
    for (const char* begin : {first, at}) {
      const char* stop = word_of(text, begin);
      if (stop == nullptr) continue;
      const char* contracted = text.contraction(stop, true);
      return contracted != nullptr ? contracted : stop;
    }
  }
  if (text.is(at, number)) return text.behind(at, number, 3);
  if (const char* stop = text.others(at)) return text.behind_if(stop, [](char c) { return is_newline(c) || c == '/'; });
  return text.lines_or_white_space(at);
}

constexpr std::array known_patterns{
    KnownPattern{"gpt2", R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)", scan_gpt2},
    KnownPattern{"", R"('(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s)", scan_gpt2,
                 true},
    KnownPattern{"llama3",
                 R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
                 R"(|\s*[\r\n]+|\s+(?!\S)|\s+)",
                 scan_cl100k<3, false>},
    KnownPattern{"cl100k",
                 R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+)"
                 R"(|\s++$|\s*[\r\n]|\s+(?!\S)|\s)",
                 scan_cl100k<3, true>, true},
    KnownPattern{"o200k",
                 R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
                 R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
                 R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
                 R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
                 R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
                 scan_o200k},
    KnownPattern{"qwen2",
                 R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
                 R"(|\s*[\r\n]+|\s+(?!\S)|\s+)",
                 scan_cl100k<1, false>},
};

}  // namespace

const KnownPattern* find_pattern_name(std::string_view name) {
  const auto found = std::find_if(known_patterns.begin(), known_patterns.end(),
                                  [&](const KnownPattern& p) { return !name.empty() && p.name == name; });
  return found == known_patterns.end() ? nullptr : &*found;
}

const KnownPattern* find_pattern_regex(std::string_view regex, bool oniguruma) {
  const auto found = std::find_if(known_patterns.begin(), known_patterns.end(), [&](const KnownPattern& p) {
    return p.regex == regex && !(oniguruma && p.rust_only);
  });
  return found == known_patterns.end() ? nullptr : &*found;
}

std::string_view pattern_names() { return "gpt2, llama3, cl100k, o200k, qwen2"; }

}  // namespace llmtrain
