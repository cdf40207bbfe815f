// SPDX-License-Identifier: Apache-2.0
/// Reading of lines by simdjson, which checks only what is visited: everything is.
#include "llmtrain/tools/json_lines.hpp"

#include <simdjson.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "llmtrain/base/error.hpp"
#include "llmtrain/tools/line_blocks.hpp"

namespace llmtrain {
namespace {

namespace ondemand = simdjson::ondemand;

constexpr int max_depth = 1000;

/// What is wrong in a line, and where if that is known.
struct Fault {
  std::string reason;
  const char* where = nullptr;
};

bool is_space(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }

/// A number as RFC 8259 writes it. Its value may be anything: a field that is not read may hold a very large number.
bool is_number(std::string_view token) {
  std::size_t i = 0;
  const auto digits = [&] {
    const std::size_t before = i;
    while (i < token.size() && token[i] >= '0' && token[i] <= '9') ++i;
    return i > before;
  };
  const auto one_of = [&](std::string_view set) {
    const bool found = i < token.size() && set.find(token[i]) != std::string_view::npos;
    i += found ? 1 : 0;
    return found;
  };
  one_of("-");
  if (!one_of("0") && !digits()) return false;
  if (one_of(".") && !digits()) return false;
  if (one_of("eE")) {
    one_of("+-");
    if (!digits()) return false;
  }
  return i == token.size();
}

void check_scalar(std::string_view token) {
  while (!token.empty() && is_space(token.back())) token.remove_suffix(1);
  if (token == "true" || token == "false" || token == "null" || is_number(token)) return;
  throw Fault{fmt::format("'{}' is not a JSON value", token.substr(0, 20)), token.data()};
}

/// Visits every value below `value`: simdjson checks only what is visited.
void check_value(ondemand::value value, int depth) {
  if (depth > max_depth) throw Fault{fmt::format("values are nested more than {} deep", max_depth)};
  const std::string_view token = value.raw_json_token();
  switch (token.empty() ? '\0' : token.front()) {
    case '{':
      for (auto field : value.get_object()) {
        field.unescaped_key().value();
        check_value(field.value(), depth + 1);
      }
      break;
    case '[':
      for (auto element : value.get_array()) check_value(element.value(), depth + 1);
      break;
    case '"': value.get_string().value(); break;
    default: check_scalar(token);
  }
}

}  // namespace

bool is_blank(std::string_view text) { return std::all_of(text.begin(), text.end(), is_space); }

struct KeyReader::Parser {
  ondemand::parser parser;
  ondemand::document document;
};

KeyReader::KeyReader(std::vector<std::string> keys, BadText bad_text)
    : keys_(std::move(keys)),
      bad_text_(bad_text),
      texts_(keys_.size()),
      found_(keys_.size()),
      parser_(std::make_unique<Parser>()) {}

KeyReader::~KeyReader() = default;

void KeyReader::walk() {
  ondemand::document& document = parser_->document;
  for (auto field : document.get_object()) {
    const std::string_view name = field.unescaped_key();
    ondemand::value value = field.value();
    const auto key = static_cast<std::size_t>(std::find(keys_.begin(), keys_.end(), name) - keys_.begin());
    if (key == keys_.size()) {
      check_value(value, 1);
      continue;
    }
    const std::string_view token = value.raw_json_token();
    if (!token.starts_with('"')) {
      throw Fault{fmt::format("key '{}' is not a string; make it one or choose another with --json-keys", name),
                  token.data()};
    }
    texts_[key] = value.get_string();
    ++found_[key];
  }
  const char* rest = nullptr;
  if (document.current_location().get(rest) == simdjson::SUCCESS) {
    throw Fault{"something follows the object; write one object a line", rest};
  }
}

void KeyReader::parse(std::string_view line) {
  std::fill(found_.begin(), found_.end(), 0);
  // Powers of two, so that slowly growing lines do not allocate anew each time.
  if (line.size() > parser_->parser.capacity() &&
      parser_->parser.allocate(std::bit_ceil(line.size())) != simdjson::SUCCESS) {
    fail(ExitCode::out_of_memory, "no memory for a line of {} bytes", line.size());
  }
  const auto status =
      parser_->parser.iterate(line.data(), line.size(), line.size() + json_padding).get(parser_->document);
  if (status != simdjson::SUCCESS) throw Fault{simdjson::error_message(status), line.data()};
  try {
    walk();
  } catch (const simdjson::simdjson_error& error) {
    Fault fault{error.what(), nullptr};
    if (parser_->document.current_location().get(fault.where) != simdjson::SUCCESS)
      fault.where = line.data() + line.size();
    throw fault;
  }
  const auto missing = static_cast<std::size_t>(std::find(found_.begin(), found_.end(), 0) - found_.begin());
  if (missing == found_.size()) return;
  throw Fault{fmt::format("the object has no key '{}'; add it or choose another with --json-keys (--prompt-key)",
                          keys_[missing]),
              line.data()};
}

KeyReader::Outcome KeyReader::read(std::string_view line) {
  const auto refuse = [](std::string_view text, const Fault& fault) {
    const bool marked = text.starts_with("\xEF\xBB\xBF");
    const std::size_t at = fault.where != nullptr ? static_cast<std::size_t>(fault.where - text.data()) : 0;
    throw LineFault{
        (marked ? "the line starts with a byte order mark, which JSON does not allow; remove it: " : "") + fault.reason,
        std::min(at, text.size())};
  };
  try {
    parse(line);
    return Outcome::read;
  } catch (const Fault& fault) {
    // simdjson refuses bad text too, without saying where: only then is it looked for.
    const BadPlace bad = find_bad_text(line);
    if (bad.at == std::string_view::npos) refuse(line, fault);
    if (bad_text_ == BadText::error) {
      throw LineFault{
          std::string(bad.escape ? "an escape that is half of a surrogate pair" : "bytes that are not UTF-8") +
              "; mend the text, or choose --bad-text replace or skip",
          bad.at};
    }
    if (bad_text_ == BadText::skip) return Outcome::skipped;
  }
  replaced_ = replace_bad_text(line);
  const std::size_t size = replaced_.size();
  replaced_.resize(size + json_padding);
  const std::string_view good(replaced_.data(), size);
  try {
    parse(good);
  } catch (const Fault& fault) {
    refuse(good, {fault.reason + " (its bad text replaced)", nullptr});
  }
  return Outcome::replaced;
}

}  // namespace llmtrain
