// SPDX-License-Identifier: Apache-2.0
/// The safetensors format: what is written byte for byte, and every kind of file that must be refused.
#include <doctest/doctest.h>

#include <cstring>

#include "checkpoint_fixture.hpp"
#include "llmtrain/base/error.hpp"
#include "llmtrain/checkpoint/safetensors.hpp"

using namespace llmtrain;
using checkpoint_test::Scratch;
using checkpoint_test::slurp;
using checkpoint_test::spill;

namespace {

std::string length_of(std::uint64_t length) { return {reinterpret_cast<const char*>(&length), sizeof length}; }

/// A file with this header and so many zero bytes of data.
std::string file_of(const std::string& header, std::size_t data) {
  return length_of(header.size()) + header + std::string(data, '\0');
}

/// The message of the refusal of a file, "" if it is read.
std::string refusal(const std::string& bytes) {
  const Scratch scratch;
  spill(scratch.path() / "w.safetensors", bytes);
  try {
    const SafetensorsFile file(scratch.path() / "w.safetensors");
    return "";
  } catch (const Error& error) {
    CHECK(error.code() == ExitCode::bad_input);
    const std::string message = error.what();
    CHECK(message.find('\n') == std::string::npos);
    CHECK(message.size() < 700);
    return message;
  }
}

void check_refused(const std::string& bytes, const std::string& words) {
  const std::string message = refusal(bytes);
  CAPTURE(message);
  CHECK(message.find(words) != std::string::npos);
}

void check_header_refused(const std::string& header, std::size_t data, const std::string& words) {
  CAPTURE(header);
  check_refused(file_of(header, data), words);
}

std::string tensor(const std::string& type, const std::string& shape, const std::string& offsets) {
  return R"({"dtype":")" + type + R"(","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}";
}

}  // namespace

TEST_CASE("safetensors: what is written, byte for byte, and read back") {
  const Scratch scratch;
  const auto path = scratch.path() / "w.safetensors";
  const std::vector<float> a{1, 2, 3, 4, 5, 6}, b{-0.5F};
  SafetensorsWriter writer(path, {{"a\"b", "F32", {2, 3}}, {"scalar", "F32", {}}}, {{"format", "pt"}});
  writer.append(std::as_bytes(std::span(a)).first(5));  // in any pieces
  writer.append(std::as_bytes(std::span(a)).subspan(5));
  writer.append(std::as_bytes(std::span(b)));
  writer.close();
  std::string header =
      R"({"__metadata__": {"format": "pt"}, "a\"b": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, )"
      R"("scalar": {"dtype": "F32", "shape": [], "data_offsets": [24, 28]}})";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  std::string data(28, '\0');
  std::memcpy(data.data(), a.data(), 24);
  std::memcpy(data.data() + 24, b.data(), 4);
  CHECK(slurp(path) == length_of(header.size()) + header + data);
  CHECK(writer.size() == static_cast<std::int64_t>(8 + header.size() + 28));

  const SafetensorsFile file(path);
  CHECK(file.header().metadata == std::map<std::string, std::string>{{"format", "pt"}});
  REQUIRE(file.header().tensors.size() == 2);
  const SafeTensor* found = file.header().find("a\"b");
  REQUIRE(found != nullptr);
  CHECK(found->shape == std::vector<std::int64_t>{2, 3});
  CHECK(file.header().find("a") == nullptr);
  std::vector<float> part(2);
  file.read(*found, 8, std::as_writable_bytes(std::span(part)));
  CHECK(part == std::vector<float>{3, 4});
  CHECK_THROWS_AS(SafetensorsWriter(path, {}, {}), Error);  // it exists
}

TEST_CASE("safetensors: what the format allows is read") {
  for (const std::string& header :
       {std::string("{}"), std::string("{}      "), R"({"a":)" + tensor("F32", "[0,5]", "[0,0]") + "}",
        R"({"z":)" + tensor("BOOL", "[4]", "[0,4]") + R"(,"a":)" + tensor("F32", "[]", "[4,8]") + "}",
        R"({"b":)" + tensor("F4", "[2,4]", "[4,8]") + R"(,"e":)" + tensor("I64", "[0]", "[4,4]") + R"(,"a":)" +
            tensor("F16", "[2]", "[0,4]") + "}",
        std::string(R"({"a":{"new":1,"dtype":"U8","shape":[8],"data_offsets":[0,8]}})")}) {
    CAPTURE(header);
    const bool has_data = header.find('8') != std::string::npos;
    CHECK(refusal(file_of(header, has_data ? 8 : 0)) == "");
  }
}

TEST_CASE("safetensors: the length of the header") {
  check_refused("", "less than the length of a header");
  check_refused(std::string(7, '\0'), "less than the length of a header");
  check_refused(length_of(0), "not a JSON object");
  check_refused(length_of(3) + "{}", "it is cut");
  check_refused(length_of(100'000'001), "at most 100000000");
  check_refused(length_of(~std::uint64_t{0}), "at most 100000000");
  check_refused(length_of(std::uint64_t{1} << 63) + "{}", "at most 100000000");
  check_refused("PK\x03\x04" + std::string(100, 'x'), "is it a safetensors file?");
}

TEST_CASE("safetensors: headers that are no header") {
  for (const char* header : {"[]", " {}", "nul", "{", R"({"a":1)", "{}{}", "\xff\xfe"}) {
    check_header_refused(header, 0, "not a JSON object");
  }
  check_header_refused(R"({"a":1})", 0, "is not an object");
  check_header_refused(R"({"a":{}})", 0, "once each");
  check_header_refused(R"({"a":{"dtype":"U8","dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 1, "once each");
  check_header_refused(R"({"a":{"dtype":"U8","shape":[1],"shape":[1]}})", 1, "once each");
  check_header_refused(R"({"__metadata__":{"a":1}})", 0, "not made of texts");
  check_header_refused(R"({"__metadata__":{"a":"1","a":"2"}})", 0, "not made of texts");
  check_header_refused(R"({"__metadata__":{},"__metadata__":{}})", 0, "twice");
  check_header_refused(R"({"__metadata__":[]})", 0, "not an object");
  check_header_refused(R"({"a":)" + tensor("U8", "[1]", "[0,1]") + R"(,"a":)" + tensor("U8", "[1]", "[1,2]") + "}", 2,
                       "\"a\" twice");
  check_header_refused(R"({"a\nb)" + std::string(1000, 'x') + R"(":1})", 0, R"("a\nbxx)");
}

TEST_CASE("safetensors: shapes that overflow or do not fit") {
  const auto one = [](const std::string& type, const std::string& shape, const std::string& offsets) {
    return R"({"a":)" + tensor(type, shape, offsets) + "}";
  };
  check_header_refused(one("F32", "[4611686018427387904,4]", "[0,0]"), 0, "impossible shape");    // 2^62 x 4
  check_header_refused(one("F32", "[4294967296,4294967296]", "[0,0]"), 0, "impossible shape");    // 2^32 x 2^32
  check_header_refused(one("F32", "[4294967296,4294967296,0]", "[0,0]"), 0, "impossible shape");  // ... x 0
  check_header_refused(one("F32", "[4611686018427387904]", "[0,0]"), 0, "impossible shape");      // 2^62 x 32 bits
  check_header_refused(one("F4", "[3]", "[0,1]"), 1, "impossible shape");                         // a byte and a half
  check_header_refused(one("F33", "[1]", "[0,4]"), 4, "unknown dtype \"F33\"");
  check_header_refused(one("F32", "[-1]", "[0,4]"), 4, "whole numbers");
  check_header_refused(one("F32", "[1.0]", "[0,4]"), 4, "whole numbers");
  check_header_refused(one("F32", "[18446744073709551615]", "[0,4]"), 4, "whole numbers");
  check_header_refused(one("F32", "{}", "[0,4]"), 4, "not a list");
  check_header_refused(one("F32", "[2]", "[0,4]"), 4, "8 bytes by its shape");
  check_header_refused(one("F32", "[1]", "[4,0]"), 4, "data_offsets 4 to 0");
  check_header_refused(one("F32", "[1]", "[0]"), 4, "not two");
  check_header_refused(one("F32", "[1]", "[0,4,8]"), 4, "at most 2");
  std::string many = "[1";
  for (int i = 0; i < 64; ++i) many += ",1";
  check_header_refused(one("F32", many + "]", "[0,4]"), 4, "at most 64");
}

TEST_CASE("safetensors: bytes of two tensors, of none, or beyond the file") {
  const auto two = [](const std::string& a, const std::string& b) {
    return R"({"a":)" + tensor("U8", "[4]", a) + R"(,"b":)" + tensor("U8", "[4]", b) + "}";
  };
  CHECK(refusal(file_of(two("[4,8]", "[0,4]"), 8)) == "");
  check_header_refused(two("[0,4]", "[0,4]"), 4, "\"b\" begins at byte 0");
  check_header_refused(two("[0,4]", "[2,6]"), 6, "\"b\" begins at byte 2");
  check_header_refused(two("[0,4]", "[5,9]"), 9, "\"b\" begins at byte 5");
  check_header_refused(two("[1,5]", "[5,9]"), 9, "\"a\" begins at byte 1");
  check_header_refused(two("[0,4]", "[4,8]"), 7, "the file is cut");
  check_header_refused(two("[0,4]", "[4,8]"), 3, "the file is cut");
  check_header_refused(two("[0,4]", "[4,8]"), 9, "the tensors have 8 bytes, the file has 9");
  check_header_refused("{}", 1, "the tensors have 0 bytes");
  check_header_refused(R"({"a":)" + tensor("U8", "[9223372036854775807]", "[0,9223372036854775807]") + "}", 4,
                       "impossible shape");
}

TEST_CASE("safetensors: every cut of a good file is refused") {
  const std::string good = file_of(R"({"a":)" + tensor("F32", "[2]", "[0,8]") + "}", 8);
  CHECK(refusal(good) == "");
  for (std::size_t bytes = 0; bytes < good.size(); ++bytes) CHECK(refusal(good.substr(0, bytes)) != "");
}

TEST_CASE("safetensors: missing files and folders") {
  const Scratch scratch;
  for (const auto& path : {scratch.path() / "none.safetensors", scratch.path()}) {
    try {
      const SafetensorsFile file(path);
      FAIL("it was opened");
    } catch (const Error& error) {
      CHECK(error.code() == ExitCode::missing_input);
    }
  }
}
