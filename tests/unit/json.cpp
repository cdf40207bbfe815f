// SPDX-License-Identifier: Apache-2.0
/// The JSON writer: order, nesting, number text, null, escapes, and bytes that are not UTF-8.
#include "llmtrain/base/json.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <limits>
#include <string>

using namespace llmtrain;

TEST_CASE("an object is one line in the order of adding") {
  JsonObject inner;
  inner.add("on", true).add("off", false);
  JsonArray list;
  list.add(1).add("two").add(inner).add(JsonArray());
  JsonObject object;
  object.add("b", 0.1).add("a", std::string("text")).add("list", list).add("empty", JsonObject());
  CHECK(object.text() == R"({"b": 0.1, "a": "text", "list": [1, "two", {"on": true, "off": false}, []], "empty": {}})");
}

TEST_CASE("integers are exact, doubles shortest, non-finite numbers null") {
  JsonArray list;
  list.add(std::numeric_limits<std::int64_t>::min())
      .add(std::numeric_limits<std::uint64_t>::max())
      .add(0)
      .add(1e300)
      .add(3.0)
      .add(-0.0);
  CHECK(list.text() == "[-9223372036854775808, 18446744073709551615, 0, 1e+300, 3, -0]");
  CHECK(json_number(std::numeric_limits<double>::quiet_NaN()) == "null");
  CHECK(json_number(std::numeric_limits<double>::infinity()) == "null");
  CHECK(json_number(-std::numeric_limits<double>::infinity()) == "null");
}

TEST_CASE("strings are escaped") {
  CHECK(json_string("a\"b\\c\n\t\r") == R"("a\"b\\c\n\t\r")");
  CHECK(json_string(std::string("\0\x1f\x7f", 3)) == R"("\u0000\u001f\u007f")");
  CHECK(json_string("Zürich € 😀") == "\"Zürich € 😀\"");
}

TEST_CASE("bytes that are not UTF-8 are replaced, each once") {
  CHECK(json_string("a\xff"
                    "b") == "\"a\\ufffdb\"");
  CHECK(json_string("\xe2\x82") == R"("\ufffd\ufffd")");                     // cut short
  CHECK(json_string("\xc0\x80") == R"("\ufffd\ufffd")");                     // overlong
  CHECK(json_string("\xed\xa0\x80") == R"("\ufffd\ufffd\ufffd")");           // surrogate
  CHECK(json_string("\xf4\x90\x80\x80").find("\xf4") == std::string::npos);  // above U+10FFFF
}
