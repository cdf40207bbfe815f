// SPDX-License-Identifier: Apache-2.0
/// Fuzz target of the JSON lines reader. An input is a line; simdjson's other interface, which checks whole documents, says
/// whether it is JSON.
#include <simdjson.h>

#include <algorithm>
#include <string>

#include "llmtrain/tools/json_lines.hpp"
#include "llmtrain/tools/line_blocks.hpp"
#include "target.hpp"

namespace llmtrain::fuzz {

namespace {

bool is_unicode(std::string_view text) {
  while (!text.empty()) {
    const int bytes = utf8_step(text);
    if (bytes < 0) return false;
    text.remove_prefix(static_cast<std::size_t>(bytes));
  }
  return true;
}

/// Whether simdjson takes the line as an object; numbers that it cannot hold are JSON all the same.
enum class Judgement { object, unknown, refused };
Judgement judge(const std::string& line) {
  simdjson::dom::parser parser;
  simdjson::dom::element element;
  const auto status = parser.parse(line).get(element);
  if (status == simdjson::NUMBER_ERROR) return Judgement::unknown;
  return status == simdjson::SUCCESS && element.is_object() ? Judgement::object : Judgement::refused;
}

/// "read", "replaced", "skipped", or "refused"; the texts that were read must be Unicode.
std::string outcome_of(const std::string& line, BadText policy) {
  KeyReader reader({"text", "t"}, policy);
  std::string padded = line;
  padded.resize(line.size() + json_padding, '"');  // what follows a line must not matter
  try {
    const auto outcome = reader.read(std::string_view(padded).substr(0, line.size()));
    if (outcome == KeyReader::Outcome::skipped) return "skipped";
    expect(is_unicode(reader.text(0)) && is_unicode(reader.text(1)), "a text that is not Unicode");
    return outcome == KeyReader::Outcome::read ? "read" : "replaced";
  } catch (const LineFault& fault) {
    expect(!fault.reason.empty() && fault.at <= line.size(), "a fault beyond its line");
    return "refused";
  }
}

}  // namespace

void try_bytes(std::string_view bytes) {
  std::string line(bytes);
  line.erase(std::remove(line.begin(), line.end(), '\n'), line.end());
  const bool bad = find_bad_text(line).at != std::string_view::npos;
  const std::string good = replace_bad_text(line);
  expect((good == line) == !bad && find_bad_text(good).at == std::string_view::npos, "replacing bad text");

  const std::string strict = outcome_of(line, BadText::error);
  expect(strict == "refused" || (strict == "read" && !bad), "bad text that was read");
  const Judgement judgement = judge(line);
  expect(strict == "refused" || judgement != Judgement::refused, "a line that is not a JSON object was read");
  if (judgement == Judgement::object && !bad) {
    simdjson::dom::parser parser;
    const simdjson::dom::element element = parser.parse(line);
    const auto is_text = [&](const char* key) {
      bool last = false;  // of repeated keys the last one counts
      for (const auto field : simdjson::dom::object(element)) {
        if (field.key == key) last = field.value.is_string();
      }
      return last;
    };
    if (!is_text("text") || !is_text("t")) expect(strict == "refused", "a key that is no string was read");
  }
  const std::string mended = outcome_of(line, BadText::replace);
  expect(!bad || mended == "replaced" || mended == "refused", "bad text was not replaced");
  expect(!(mended == "replaced") || outcome_of(good, BadText::error) == "read", "replaced text is not read as such");
  expect((outcome_of(line, BadText::skip) == "skipped") == bad, "a line with bad text was not skipped");
}

std::vector<std::string> seeds() {
  return {
      R"({"text":"a","t":"b"})",
      R"({"id":7,"text":"zw\u00f6lf \ud83d\ude00","t":"","x":[1,-0.5e+10,{"text":null}],"y":true})",
      R"({"te\u0078t":"\\ud800 \"\/\b\f\n\r\t","t":"x","text":"last"})",
      R"({"text":"\ud800","t":"\udc00\u12"})",
      "{\"text\":\"\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80\",\"t\":\"\xFF\xC0\xAF\xED\xA0\x80\xE2\x82\"}",
      R"({"text":"a","t":"b"}{"text":"c"})",
      R"([{"text":"a"}])",
      "\xEF\xBB\xBF{\"text\":\"a\",\"t\":\"\"}",
  };
}

}  // namespace llmtrain::fuzz
