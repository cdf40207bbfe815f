// SPDX-License-Identifier: Apache-2.0
/// Lines of a file, and strict reading of one JSON object a line.
#include "llmtrain/tools/json_lines.hpp"

#include <fcntl.h>
#include <simdjson.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <utility>

#include "llmtrain/base/error.hpp"

namespace llmtrain {
namespace {

namespace ondemand = simdjson::ondemand;

constexpr std::size_t first_buffer = std::size_t{4} << 20;
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

/// Bytes of the well-formed UTF-8 sequence at the start of `text`, or 0 (Unicode 15, table 3-7).
std::size_t utf8_sequence(std::string_view text) {
  const auto byte = [&](std::size_t i) -> unsigned {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0;
  };
  const auto follows = [&](std::size_t i, unsigned low = 0x80, unsigned high = 0xBF) {
    return byte(i) >= low && byte(i) <= high;
  };
  const unsigned lead = byte(0);
  if (lead < 0x80) return 1;
  if (lead >= 0xC2 && lead <= 0xDF) return follows(1) ? 2 : 0;
  if (lead >= 0xE0 && lead <= 0xEF) {
    return follows(1, lead == 0xE0 ? 0xA0 : 0x80, lead == 0xED ? 0x9F : 0xBF) && follows(2) ? 3 : 0;
  }
  if (lead >= 0xF0 && lead <= 0xF4) {
    return follows(1, lead == 0xF0 ? 0x90 : 0x80, lead == 0xF4 ? 0x8F : 0xBF) && follows(2) && follows(3) ? 4 : 0;
  }
  return 0;
}

}  // namespace

bool is_blank(std::string_view text) { return std::all_of(text.begin(), text.end(), is_space); }

std::size_t first_invalid_utf8(std::string_view text) {
  std::size_t at = 0;
  while (at < text.size()) {
    const std::size_t bytes = utf8_sequence(text.substr(at));
    if (bytes == 0) break;
    at += bytes;
  }
  return at;
}

LineReader::LineReader(std::string path, std::int64_t max_line_bytes)
    : path_(std::move(path)), max_line_bytes_(static_cast<std::size_t>(max_line_bytes)), buffer_(first_buffer) {
  descriptor_ = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC);
  require(descriptor_ >= 0, ExitCode::missing_input, "cannot open {}: {}", path_, std::strerror(errno));
}

LineReader::~LineReader() { ::close(descriptor_); }

bool LineReader::fill() {
  if (begin_ > 0) {
    std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
    end_ -= begin_;
    scanned_ -= begin_;
    begin_ = 0;
  }
  if (end_ + json_padding == buffer_.size()) {
    // One byte above the cap is enough to see that a line is too long.
    buffer_.resize(std::max(buffer_.size() + 1, std::min(2 * buffer_.size(), max_line_bytes_ + 1 + json_padding)));
  }
  for (;;) {
    const ssize_t got = ::read(descriptor_, buffer_.data() + end_, buffer_.size() - json_padding - end_);
    if (got < 0 && errno == EINTR) continue;
    require(got >= 0, ExitCode::io_error, "reading {} after byte {} failed: {}", path_,
            offset_ + static_cast<std::int64_t>(end_), std::strerror(errno));
    end_ += static_cast<std::size_t>(got);
    return got > 0;
  }
}

bool LineReader::next(JsonLine& line) {
  for (;;) {
    const char* data = buffer_.data();
    const auto* newline = static_cast<const char*>(std::memchr(data + scanned_, '\n', end_ - scanned_));
    const std::size_t stop = newline != nullptr ? static_cast<std::size_t>(newline - data) : end_;
    require(stop - begin_ <= max_line_bytes_, ExitCode::bad_input,
            "{}:{}: the line at byte {} is longer than {} bytes; raise --max-line-bytes or cut the document", path_,
            number_ + 1, offset_, max_line_bytes_);
    if (newline == nullptr && !at_end_) {
      scanned_ = end_;
      at_end_ = !fill();
      continue;
    }
    if (newline == nullptr && begin_ == end_) return false;
    line = {{data + begin_, stop - begin_}, ++number_, offset_};
    const std::size_t next = newline != nullptr ? stop + 1 : stop;
    offset_ += static_cast<std::int64_t>(next - begin_);
    begin_ = scanned_ = next;
    return true;
  }
}

struct KeyReader::Parser {
  ondemand::parser parser;
  ondemand::document document;
};

KeyReader::KeyReader(std::vector<std::string> keys)
    : keys_(std::move(keys)), texts_(keys_.size()), found_(keys_.size()), parser_(std::make_unique<Parser>()) {}

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

void KeyReader::read(const std::string& path, const JsonLine& line) {
  std::fill(found_.begin(), found_.end(), 0);
  Fault fault;
  const std::size_t bytes = line.text.size();
  // Powers of two, so that slowly growing lines do not allocate anew each time.
  if (bytes > parser_->parser.capacity()) {
    const auto status = parser_->parser.allocate(std::bit_ceil(bytes));
    require(status == simdjson::SUCCESS, ExitCode::out_of_memory, "{}:{}: no memory for a line of {} bytes", path,
            line.number, bytes);
  }
  const auto status = parser_->parser.iterate(line.text.data(), bytes, bytes + json_padding).get(parser_->document);
  if (status == simdjson::UTF8_ERROR) {
    fault = {"bytes that are not UTF-8", line.text.data() + first_invalid_utf8(line.text)};
  } else if (status != simdjson::SUCCESS) {
    fault = {simdjson::error_message(status), line.text.data()};
  } else {
    try {
      walk();
    } catch (const Fault& found) {
      fault = found;
    } catch (const simdjson::simdjson_error& error) {
      fault = {error.what(), nullptr};
      if (parser_->document.current_location().get(fault.where) != simdjson::SUCCESS)
        fault.where = line.text.data() + bytes;
    }
  }
  if (fault.reason.empty()) {
    const auto missing = static_cast<std::size_t>(std::find(found_.begin(), found_.end(), 0) - found_.begin());
    if (missing == found_.size()) return;
    fault.reason = fmt::format("the object has no key '{}'; add it or choose another with --json-keys", keys_[missing]);
  }
  const auto within = fault.where != nullptr ? fault.where - line.text.data() : 0;
  const bool marked = line.text.starts_with("\xEF\xBB\xBF");
  fail(ExitCode::bad_input, "{}:{}: byte {}: {}{}", path, line.number, line.offset + within,
       marked ? "the line starts with a byte order mark, which JSON does not allow; remove it: " : "", fault.reason);
}

}  // namespace llmtrain
