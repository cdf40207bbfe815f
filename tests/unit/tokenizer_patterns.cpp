// SPDX-License-Identifier: Apache-2.0
/// The scanners of well-known patterns: tricky texts by hand, and linear time. tests/golden compares them with the originals.
#include <doctest/doctest.h>

#include <string>

#include "llmtrain/tokenizer/scan.hpp"

using namespace llmtrain;

namespace {

/// The pieces with "|" between them.
std::string cut(std::string_view pattern, const std::string& text) {
  const Scan scan = find_pattern_name(pattern)->scan;
  const char* end = text.data() + text.size();
  std::string pieces;
  for (const char* at = text.data(); at != end;) {
    const char* stop = scan(at, end);
    REQUIRE(stop > at);
    REQUIRE(stop <= end);
    if (!pieces.empty()) pieces += '|';
    pieces.append(at, stop);
    at = stop;
  }
  return pieces;
}

}  // namespace

TEST_CASE("words, numbers and signs take a space along") {
  CHECK(cut("gpt2", "Hello world, it's 2024!") == "Hello| world|,| it|'s| 2024|!");
  CHECK(cut("llama3", "Hello world, it's 2024!") == "Hello| world|,| it|'s| |202|4|!");
  CHECK(cut("cl100k", "Hello world, it's 2024!") == "Hello| world|,| it|'s| |202|4|!");
  CHECK(cut("qwen2", "Hello world, it's 2024!") == "Hello| world|,| it|'s| |2|0|2|4|!");
  CHECK(cut("o200k", "Hello world, it's 2024!") == "Hello| world|,| it's| |202|4|!");
}

TEST_CASE("the last white space belongs to what follows") {
  CHECK(cut("gpt2", "a   b") == "a|  | b");
  CHECK(cut("gpt2", "a \n b  ") == "a| \n| b|  ");
  CHECK(cut("gpt2", "a\nb") == "a|\n|b");
  CHECK(cut("llama3", "a \n\n  b") == "a| \n\n| | b");
  CHECK(cut("llama3", "a\tb") == "a|\tb");
  CHECK(cut("llama3", "a\u00A0b\u3000\u3000c") == "a|\u00A0b|\u3000|\u3000c");
  CHECK(cut("llama3", "x;\n\ny") == "x|;\n\n|y");
  CHECK(cut("llama3", "a\n  ") == "a|\n|  ");
  CHECK(cut("cl100k", "a\n  ") == "a|\n  ");
  CHECK(cut("o200k", "a//\n/b") == "a|//\n/|b");
}

TEST_CASE("contractions, in the cases that each pattern knows") {
  CHECK(cut("gpt2", "I'LL'll'S's'x") == "I|'|LL|'ll|'|S|'s|'|x");
  CHECK(cut("llama3", "I'LL'll'S'x'\u017F") == "I|'LL|'ll|'S|'x|'\u017F");
  CHECK(cut("llama3", "'\u017Fa") == "'\u017F|a");
  CHECK(cut("o200k", "He'LL go'") == "He'LL| go|'");
  CHECK(cut("gpt2", "' 's") == "'| '|s");
}

TEST_CASE("o200k tells capitals from small letters") {
  CHECK(cut("o200k", "camelCaseHTTPServer") == "camel|Case|HTTPServer");
  CHECK(cut("o200k", "ABC") == "ABC");
  CHECK(cut("o200k", "\u4E2DABc\u4E2DAB") == "\u4E2DABc\u4E2D|AB");
  CHECK(cut("o200k", "A\u4E2DAB.") == "A\u4E2D|AB|.");
  CHECK(cut("o200k", "e\u0301\u0301x") == "e\u0301\u0301x");
  CHECK(cut("o200k", "\u0301\u0301") == "\u0301\u0301");
}

TEST_CASE("bytes that are not UTF-8 are signs, and nothing is read behind the end") {
  for (const char* pattern : {"gpt2", "llama3", "cl100k", "o200k", "qwen2"}) {
    CAPTURE(pattern);
    CHECK(cut(pattern, "a\xFF\xFE\x80z") == "a|\xFF\xFE\x80|z");
    CHECK(cut(pattern, "a\xE2\x82") == "a|\xE2\x82");
    CHECK(cut(pattern, "a\xED\xA0\x80") == "a|\xED\xA0\x80");
    CHECK(cut(pattern, "a\xC0\xAF") == "a|\xC0\xAF");
    CHECK(cut(pattern, "'") == "'");
    CHECK(cut(pattern, " ") == " ");
    CHECK(cut(pattern, "") == "");
  }
}

TEST_CASE("expressions are known in every spelling that files use") {
  const KnownPattern* llama3 = find_pattern_name("llama3");
  CHECK(find_pattern_regex(llama3->regex, true) == llama3);
  const KnownPattern* cl100k = find_pattern_name("cl100k");
  CHECK(find_pattern_regex(cl100k->regex, false) == cl100k);
  CHECK(find_pattern_regex(cl100k->regex, true) == nullptr);  // '$' means another thing there
  CHECK(find_pattern_name("") == nullptr);
  CHECK(find_pattern_name("gpt3") == nullptr);
}
