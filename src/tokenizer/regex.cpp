// SPDX-License-Identifier: Apache-2.0
/// PCRE2 with its just-in-time compiler and with limits, so that no pattern can hang or exhaust the stack.
#include "regex.hpp"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <array>
#include <stdexcept>

#include "llmtrain/base/error.hpp"
#include "unicode.hpp"

namespace llmtrain {
namespace {

constexpr std::uint32_t match_limit = 20'000'000;    // steps of one match
constexpr std::uint32_t heap_limit = 256 << 10;      // KiB
constexpr std::size_t largest_jit_stack = 16 << 20;  // bytes

std::string message_of(int error) {
  std::array<PCRE2_UCHAR, 256> text{};
  pcre2_get_error_message(error, text.data(), text.size());
  return reinterpret_cast<const char*>(text.data());
}

/// Throws for what Oniguruma reads and PCRE2 reads differently, silently.
void refuse_foreign(std::string_view pattern) {
  for (std::size_t i = 0; i + 1 < pattern.size(); ++i) {
    const std::string_view two = pattern.substr(i, 2);
    if (two == "\\h" || two == "\\H" || two == "&&" || two == "(?") {
      const bool option_m =
          two == "(?" &&
          pattern.substr(i + 2, pattern.find_first_of(":)=!<>", i + 2) - i - 2).find('m') != std::string_view::npos;
      if (two != "(?" || option_m) {
        throw std::invalid_argument(std::string(two == "(?" ? "(?m)" : two) +
                                    " means something else in the engine used here");
      }
    }
    if (two[0] == '\\') ++i;
  }
}

struct MatchDataDelete {
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
};
struct ContextDelete {
  void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
};
struct StackDelete {
  void operator()(pcre2_jit_stack* stack) const { pcre2_jit_stack_free(stack); }
};

/// The text with a control character in place of each byte that is not UTF-8; the same text if all of it is.
std::string_view well_formed(std::string_view text, std::string& copy) {
  const char* end = text.data() + text.size();
  for (const char* at = text.data(); at != end;) {
    const std::size_t bytes = utf8_bytes(at, end);
    if (bytes == 0) {
      if (copy.empty()) copy = text;
      copy[static_cast<std::size_t>(at - text.data())] = '\x01';
    }
    at += bytes == 0 ? 1 : bytes;
  }
  return copy.empty() ? text : copy;
}

}  // namespace

struct Regex::Code {
  explicit Code(pcre2_code* compiled) : code(compiled) {}
  ~Code() { pcre2_code_free(code); }
  Code(const Code&) = delete;
  Code& operator=(const Code&) = delete;

  pcre2_code* code;
};

Regex::~Regex() = default;
Regex::Regex(Regex&&) noexcept = default;
Regex& Regex::operator=(Regex&&) noexcept = default;

Regex::Regex(std::string_view pattern, RegexSyntax syntax) : pattern_(pattern) {
  if (syntax == RegexSyntax::oniguruma) refuse_foreign(pattern);
  const std::uint32_t options = PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C |
                                (syntax == RegexSyntax::oniguruma ? PCRE2_MULTILINE : PCRE2_DOLLAR_ENDONLY);
  int error = 0;
  PCRE2_SIZE offset = 0;
  pcre2_code* code =
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(), options, &error, &offset, nullptr);
  if (code == nullptr) throw std::invalid_argument(fmt::format("{} at its byte {}", message_of(error), offset));
  code_ = std::make_unique<Code>(code);
  pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);  // where there is no such compiler, matching is only slower
}

void Regex::find_all(std::string_view text, std::vector<Span>& matches) const {
  matches.clear();
  std::string copy;
  const std::string_view subject = well_formed(text, copy);
  const std::unique_ptr<pcre2_match_data, MatchDataDelete> data(
      pcre2_match_data_create_from_pattern(code_->code, nullptr));
  const std::unique_ptr<pcre2_match_context, ContextDelete> context(pcre2_match_context_create(nullptr));
  const std::unique_ptr<pcre2_jit_stack, StackDelete> stack(
      pcre2_jit_stack_create(32 << 10, largest_jit_stack, nullptr));
  pcre2_set_match_limit(context.get(), match_limit);
  pcre2_set_heap_limit(context.get(), heap_limit);
  pcre2_jit_stack_assign(context.get(), nullptr, stack.get());
  const PCRE2_SIZE* found = pcre2_get_ovector_pointer(data.get());
  std::size_t from = 0;
  std::size_t last_end = std::string_view::npos;
  while (from <= subject.size()) {
    const int count = pcre2_match(code_->code, reinterpret_cast<PCRE2_SPTR>(subject.data()), subject.size(), from,
                                  PCRE2_NO_UTF_CHECK, data.get(), context.get());
    if (count == PCRE2_ERROR_NOMATCH) return;
    require(count > 0, ExitCode::bad_input, "the tokenizer's pattern '{}' gives up at byte {} of a text of {}: {}",
            pattern_, from, text.size(), message_of(count));
    const Span match{found[0], found[1]};
    const bool empty = match.begin >= match.end;
    // As the original engines: no empty match right behind a match, and the search goes on a character later.
    if (!empty || match.end != last_end) matches.push_back({match.begin, std::max(match.begin, match.end)});
    last_end = match.end;
    from = match.end;
    if (empty) {
      if (from == subject.size()) return;
      from += utf8_bytes(subject.data() + from, subject.data() + subject.size());
    }
  }
}

}  // namespace llmtrain
