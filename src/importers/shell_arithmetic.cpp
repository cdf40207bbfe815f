// SPDX-License-Identifier: Apache-2.0
/// $((...)) of shell scripts: whole numbers, variables, + - * / %, parentheses.
#include <charconv>
#include <optional>

#include "llmtrain/importers/shell.hpp"

namespace llmtrain {
namespace {

constexpr int deepest = 64;

/// Recursive descent; nullopt for anything else than arithmetic, for overflow and for division by zero.
class Arithmetic {
 public:
  Arithmetic(std::string_view text, const ShellVariables& variables, int depth)
      : text_(text), variables_(variables), depth_(depth) {}

  std::optional<std::int64_t> all() {
    const std::optional<std::int64_t> value = sum();
    skip_blanks();
    return at_ == text_.size() ? value : std::nullopt;
  }

 private:
  using Value = std::optional<std::int64_t>;

  Value sum() {
    Value left = product();
    for (char sign = next(); left && (sign == '+' || sign == '-'); sign = next()) {
      ++at_;
      const Value right = product();
      std::int64_t out = 0;
      if (!right ||
          (sign == '+' ? __builtin_add_overflow(*left, *right, &out) : __builtin_sub_overflow(*left, *right, &out))) {
        return std::nullopt;
      }
      left = out;
    }
    return left;
  }

  Value product() {
    Value left = factor();
    for (char sign = next(); left && (sign == '*' || sign == '/' || sign == '%'); sign = next()) {
      ++at_;
      const Value right = factor();
      std::int64_t out = 0;
      if (!right || (sign != '*' && (*right == 0 || *right == -1))) return std::nullopt;
      if (sign == '*' && __builtin_mul_overflow(*left, *right, &out)) return std::nullopt;
      left = sign == '*' ? out : sign == '/' ? *left / *right : *left % *right;
    }
    return left;
  }

  Value factor() {
    if (++depth_ > deepest) return std::nullopt;
    const char c = next();
    if (c == '(') {
      ++at_;
      const Value inside = sum();
      if (next() != ')') return std::nullopt;
      ++at_;
      return inside;
    }
    if (c >= '0' && c <= '9') return number();
    return variable();
  }

  Value number() {
    std::int64_t value = 0;
    const auto [end, code] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), value);
    at_ = static_cast<std::size_t>(end - text_.data());
    return code == std::errc() ? Value(value) : std::nullopt;
  }

  Value variable() {
    if (next() == '$') ++at_;
    const bool braces = at_ < text_.size() && text_[at_] == '{';
    if (braces) ++at_;
    const std::size_t begin = at_;
    while (at_ < text_.size() && (std::isalnum(static_cast<unsigned char>(text_[at_])) != 0 || text_[at_] == '_'))
      ++at_;
    const auto found = variables_.find(text_.substr(begin, at_ - begin));
    if (braces && (at_ == text_.size() || text_[at_++] != '}')) return std::nullopt;
    if (found == variables_.end() || found->second.size() != 1) return std::nullopt;
    return Arithmetic(found->second.front(), variables_, depth_).all();
  }

  void skip_blanks() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t' || text_[at_] == '\n')) ++at_;
  }
  char next() {
    skip_blanks();
    return at_ < text_.size() ? text_[at_] : '\0';
  }

  std::string_view text_;
  const ShellVariables& variables_;
  int depth_;
  std::size_t at_ = 0;
};

}  // namespace

bool shell_arithmetic(std::string_view expression, const ShellVariables& variables, std::int64_t& value) {
  const std::optional<std::int64_t> result = Arithmetic(expression, variables, 0).all();
  value = result.value_or(0);
  return result.has_value();
}

}  // namespace llmtrain
