// SPDX-License-Identifier: Apache-2.0
/// llmtrain preprocess: documents in, token files out; every malformed line named; nothing left after a failure.
#include "llmtrain/tools/tool.hpp"

#include <doctest/doctest.h>
#include <zlib.h>
#include <zstd.h>

#include <atomic>
#include <random>

#include "data_files.hpp"
#include "llmtrain/data/sidecar.hpp"
#include "llmtrain/tools/json_lines.hpp"
#include "llmtrain/tools/line_blocks.hpp"

using namespace llmtrain;

namespace {

struct Case {
  TestFolder folder;
  std::string input = folder / "in.jsonl";

  int run(const std::string& lines, const std::vector<std::string>& options = {}) const {
    write_file(input, lines);
    std::vector<std::string> args = {"--input", input, "--output-prefix", folder / "out", "--tokenizer", "bytes"};
    args.insert(args.end(), options.begin(), options.end());
    return tool_preprocess(MpiComm{}, args);
  }

  /// The sequences of a key, as text; '$' for the end of a document.
  std::vector<std::string> sequences(const std::string& key = "text") const {
    const IndexedDataset set(folder / ("out_" + key + "_document"));
    std::vector<std::string> texts;
    std::int64_t tokens = 0;
    for (std::int64_t i = 0; i < set.sequences(); ++i) {
      std::vector<std::int32_t> ids(static_cast<std::size_t>(set.length(i)));
      set.read(i, 0, ids);
      std::string text;
      for (const std::int32_t id : ids) text.push_back(id == 256 ? '$' : static_cast<char>(id));
      texts.push_back(text);
      tokens += set.length(i);
    }
    CHECK(tokens == set.tokens());
    return texts;
  }
};

using Texts = std::vector<std::string>;

std::string gzipped(const std::string& text) {
  z_stream stream{};
  REQUIRE(::deflateInit2(&stream, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) == Z_OK);
  std::string packed(::deflateBound(&stream, text.size()) + 64, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  REQUIRE(::deflate(&stream, Z_FINISH) == Z_STREAM_END);
  packed.resize(stream.total_out);
  ::deflateEnd(&stream);
  return packed;
}

std::string zstd_packed(const std::string& text) {
  std::string packed(::ZSTD_compressBound(text.size()), '\0');
  packed.resize(::ZSTD_compress(packed.data(), packed.size(), text.data(), text.size(), 3));
  return packed;
}

/// JSON lines of texts that differ in length, some longer than a block, some lines blank.
std::string many_lines(std::size_t lines, std::size_t longest) {
  std::mt19937 random(3);
  std::string all;
  for (std::size_t i = 0; i < lines; ++i) {
    if (random() % 50 == 0) all += "\n";
    all += "{\"text\":\"" + std::string(random() % (i % 100 == 0 ? longest : 200), static_cast<char>('a' + i % 26)) +
           "\"}\n";
  }
  return all;
}

}  // namespace

TEST_CASE("lines become documents, with and without the end of document") {
  const Case test;
  CHECK(test.run("{\"text\": \"one\"}\n\n  \t\r\n{\"id\": 7, \"text\": \"zw\\u00f6lf \\n\"}\r\n{\"text\":\"last\"}") ==
        0);
  CHECK(test.sequences() == Texts{"one", "zw\xC3\xB6lf \n", "last"});
  CHECK(test.folder.names() ==
        Texts{"in.jsonl", "out_text_document.bin", "out_text_document.idx", "out_text_document.json"});
  CHECK(test.run("{\"text\": \"one\"}\n{\"text\":\"two\"}\n", {"--append-eod"}) == 0);
  CHECK(test.sequences() == Texts{"one$", "two$"});
  const auto sidecar = read_sidecar(test.folder / "out_text_document");
  REQUIRE(sidecar.has_value());
  CHECK(sidecar->inputs == Texts{test.input});
  CHECK(sidecar->documents == 2);
  CHECK(sidecar->sequences == 2);
  CHECK(sidecar->tokens == 8);
  CHECK(sidecar->text_bytes == 6);
  CHECK(sidecar->max_token == 256);
  CHECK(sidecar->eod == 256);
  CHECK(sidecar->vocab == 257);
  CHECK(sidecar->tokenizer == "bytes");
}

TEST_CASE("empty documents: an entry, no sequence, no end of document, at any place") {
  const Case test;
  for (const std::size_t place : {0, 1, 2}) {
    std::string lines;
    for (std::size_t i = 0; i < 3; ++i) lines += i == place ? "{\"text\":\"\"}\n" : "{\"text\":\"x\"}\n";
    test.run(lines, {"--append-eod"});
    CHECK(test.sequences() == Texts{"x$", "x$"});
    const IndexedDataset set(test.folder / "out_text_document");
    CHECK(set.documents() == 3);
    CHECK(set.document_of(0) == (place == 0 ? 1 : 0));
    CHECK(set.document_of(1) == (place == 2 ? 1 : 2));
    CHECK(read_sidecar(test.folder / "out_text_document")->empty_documents == 1);
  }
  test.run("{\"text\":\"\"}\n{\"text\":\"\"}\n", {"--append-eod"});
  CHECK(test.sequences().empty());
  CHECK(IndexedDataset(test.folder / "out_text_document").documents() == 2);
}

TEST_CASE("only a line feed ends a line") {
  const Case test;
  // U+2028, U+2029, U+0085, and escaped vertical tab and form feed
  test.run(
      "{\"text\":\"a\xE2\x80\xA8"
      "b\xE2\x80\xA9"
      "c\xC2\x85"
      "d\\u000b\\f\"}\n");
  CHECK(test.sequences() == Texts{"a\xE2\x80\xA8"
                                  "b\xE2\x80\xA9"
                                  "c\xC2\x85"
                                  "d\v\f"});
}

TEST_CASE("repeated keys: the last one counts; fields that are not read may hold anything that is JSON") {
  const Case test;
  test.run(
      "{\"text\":\"first\", \"text\":\"second\", \"te\\u0078t\":\"third\"}\n"
      "{\"n\":null, \"text\":\"a\", \"x\":[1,{\"text\":\"inner\"},-0.5e+10], \"big\":123456789012345678901234567890}\n"
      "{\"n\":\"s\", \"x\":{}, \"big\":1e999, \"t\":true, \"text\":\"b\", \"y\":[]}\n");
  CHECK(test.sequences() == Texts{"third", "a", "b"});
  CHECK(read_sidecar(test.folder / "out_text_document")->repeated_keys == 1);
}

TEST_CASE("two keys make two sets; a failure in the second leaves neither") {
  const Case test;
  test.run("{\"b\":\"bee\", \"a\":\"\"}\n{\"a\":\"ay\", \"b\":\"b\"}\n", {"--json-keys", "a,b"});
  CHECK(test.sequences("a") == Texts{"ay"});
  CHECK(test.sequences("b") == Texts{"bee", "b"});
  const Case other;
  CHECK_FAILS(other.run("{\"b\":\"bee\", \"a\":\"ay\"}\n{\"a\":\"ay\"}\n", {"--json-keys", "a,b"}), 65, "in.jsonl:2");
  CHECK(other.folder.names() == Texts{"in.jsonl"});
}

TEST_CASE("a malformed line is named by file, line and byte, and nothing is left") {
  const Case test;
  const std::string good = "{\"text\":\"ok\"}\n";  // 14 bytes
  const auto refuse = [&](const std::string& line, const std::string& part) {
    CAPTURE(line);
    CHECK_FAILS(test.run(good + "\n" + line + "\n" + good), 65, "in.jsonl:3: byte ");
    CHECK_FAILS(test.run(good + "\n" + line + "\n" + good), 65, part);
    CHECK(test.folder.names() == Texts{"in.jsonl"});
  };
  refuse("{\"text\":\"a\"} {\"text\":\"b\"}", "byte 28: something follows");
  refuse("{\"text\":\"a\"} tail", "byte ");
  refuse("{\"text\":\"a\"}}", "byte 27: something follows");
  refuse("{\"text\":\"cut", "byte 15");
  refuse("{\"text\":\"cut\"", "byte ");
  refuse("[\"text\"]", "byte 15");
  refuse("\"text\"", "byte 15");
  refuse("{}", "no key 'text'");
  refuse("{\"Text\":\"a\"}", "no key 'text'");
  refuse("{\"text\":null}", "byte 23: key 'text' is not a string");
  refuse("{\"text\":5}", "is not a string");
  refuse("{\"text\":[\"a\"]}", "is not a string");
  refuse("{\"text\":\"a\", \"x\":tru}", "'tru'");
  refuse("{\"text\":\"a\", \"x\":nulll}", "'nulll'");
  refuse("{\"text\":\"a\", \"x\":01}", "'01'");
  refuse("{\"text\":\"a\", \"x\":1.}", "'1.'");
  refuse("{\"text\":\"a\", \"x\":+1}", "'+1'");
  refuse("{\"text\":\"a\", \"x\":NaN}", "'NaN'");
  refuse("{\"text\":\"a\", \"x\":[1,]}", "byte ");
  refuse("{\"text\":\"a\", \"x\":[1 2]}", "byte ");
  refuse("{\"text\":\"a\", \"x\":{\"y\" 1}}", "byte ");
  refuse("{\"text\":\"a\", \"x\":{y:1}}", "byte ");
  refuse("{\"text\":\"a\", \"x\":[1}", "byte ");
  refuse("{\"text\":\"a\",}", "byte ");
  refuse("{\"text\":\"a\" \"x\":1}", "byte ");
  refuse("{\"text\":\"a\", \"x\":\"\\q\"}", "byte ");
  refuse("{\"text\":\"\\u12g4\"}", "byte ");
  refuse("{\"text\":\"a\", \"x\":" + std::string(2000, '[') + std::string(2000, ']') + "}", "nested");
  refuse("{\"text\":\"\\ud800\"}", "byte ");  // half of a surrogate pair
  refuse("{\"text\":\"\\udc00\"}", "byte ");
  refuse("{\"text\":\"\\ud83dx\"}", "byte ");
  refuse(std::string("{\"text\":\"a\0b\"}", 14), "byte ");  // a raw NUL
  refuse(std::string("{\"text\":\"a\"}\0", 13), "byte ");
  refuse("{\"text\":\"a\tb\"}", "byte ");  // control characters must be escaped
  refuse("\xEF\xBB\xBF{\"text\":\"a\"}", "byte order mark");
}

TEST_CASE("bytes that are not UTF-8 are found to the byte") {
  const Case test;
  for (const std::string bad :
       {"\xFF\xFE\x80", "\xC0\xAF", "\xED\xA0\x80", "\xE2\x82", "\xF4\x90\x80\x80", "\x80", "\xF0\x8F\xBF\xBF"}) {
    CAPTURE(bad);
    CHECK_FAILS(test.run("{\"text\":\"\xC3\xA9\"}\n{\"text\":\"\xE2\x82\xAC" + bad + "\"}\n"), 65,
                "in.jsonl:2: byte 26: bytes that are not UTF-8");
  }
  CHECK(find_bad_text("a\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80").at == std::string_view::npos);
}

TEST_CASE("lines of any length up to the cap, wherever buffers end") {
  const std::size_t buffer = std::size_t{4} << 20;
  const std::string frame = "{\"text\":\"\"}";
  for (const std::size_t bytes : {buffer - 65, buffer - 64, buffer - 63, buffer - 1, buffer, buffer + 1, 5 * buffer}) {
    const Case test;
    const std::string text(bytes - frame.size(), 'x');
    test.run("{\"text\":\"a\"}\n{\"text\":\"" + text + "\"}\n{\"text\":\"z\"}\n");
    CHECK(test.sequences() == Texts{"a", text, "z"});
  }
  const Case test;
  CHECK(test.run("{\"text\":\"123456789\"}\n", {"--max-line-bytes", "20"}) == 0);
  CHECK_FAILS(test.run("\n{\"text\":\"1234567890\"}\n", {"--max-line-bytes", "20"}), 65,
              "in.jsonl:2: the line at byte 1");
  CHECK_FAILS(test.run("{\"text\":\"1234567890\"}", {"--max-line-bytes", "20"}), 65, "--max-line-bytes");
}

TEST_CASE("several inputs are one set") {
  const Case test;
  write_file(test.folder / "more", "{\"text\":\"m\"}");
  test.run("{\"text\":\"a\"}", {"--input", test.folder / "more"});
  CHECK(test.sequences() == Texts{"a", "m"});
}

TEST_CASE("wrong command lines, inputs and outputs") {
  const Case test;
  write_file(test.input, "{\"text\":\"a\"}\n");
  const auto call = [&](const std::vector<std::string>& args) { return [args] { tool_preprocess(MpiComm{}, args); }; };
  const auto fails = [&](std::vector<std::string> args, const std::string& code, const std::string& part) {
    const std::string message = error_of(call(args));
    CAPTURE(message);
    CHECK(message.starts_with(code));
    CHECK(message.find(part) != std::string::npos);
  };
  const std::string out = test.folder / "out";
  fails({}, "64", "--input is missing");
  fails({"--input", test.input, "--tokenizer", "bytes"}, "64", "--output-prefix is missing");
  fails({"--input", test.input, "--output-prefix", out}, "64", "--tokenizer is missing");
  fails({"--bogus"}, "64", "bogus");
  fails({"stray"}, "64", "positional");
  fails({"--input", test.input, "--output-prefix", out, "--tokenizer", "bytes", "--max-line-bytes", "0"}, "64",
        "--max-line-bytes");
  fails({"--input", test.input, "--output-prefix", out, "--tokenizer", "bytes", "--max-line-bytes", "x"}, "64", "x");
  fails({"--input", test.input, "--output-prefix", out, "--tokenizer", "bytes", "--json-keys", "a,,b"}, "64",
        "--json-keys");
  fails({"--input", test.input, "--output-prefix", out, "--tokenizer", "bytes", "--json-keys", "a,a"}, "64",
        "named twice");
  fails({"--input", test.input, "--output-prefix", out, "--tokenizer", "bytes", "--json-keys", "a/b"}, "64", "'/'");
  fails({"--input", test.input, "--output-prefix", out, "--tokenizer", "tokenizer.model"}, "66", "tokenizer.model");
  fails({"--input", test.folder / "none", "--output-prefix", out, "--tokenizer", "bytes"}, "66", "none");
  fails({"--input", test.folder / "", "--output-prefix", out, "--tokenizer", "bytes"}, "66", "folder");
  fails({"--input", test.input, "--output-prefix", test.folder / "no/out", "--tokenizer", "bytes"}, "73", "no/out");
  CHECK(test.folder.names() == Texts{"in.jsonl"});
}

TEST_CASE("gzip and Zstandard, by content, also of several parts; cut or damaged ones are refused") {
  const Case test;
  const std::string text = many_lines(3000, 3 << 20);
  test.run(text);
  const Texts expected = test.sequences();
  const std::size_t half = text.find('\n', text.size() / 2) - 20;  // within a line
  const std::string head = text.substr(0, half), tail = text.substr(half);
  for (const std::string& packed :
       {gzipped(text), gzipped(head) + gzipped(tail), gzipped(text) + std::string(512, '\0'), zstd_packed(text),
        zstd_packed(head) + zstd_packed(tail)}) {
    test.run(packed);
    CHECK(test.sequences() == expected);
  }
  test.run(gzipped(""));
  CHECK(test.sequences().empty());
  for (const char* end : {"bin", "idx", "json"}) {
    std::filesystem::remove(test.folder / ("out_text_document." + std::string(end)));
  }
  for (const std::string& packed : {gzipped(text), zstd_packed(text)}) {
    for (const std::size_t size : {packed.size() - 1, packed.size() / 2, std::size_t{20}}) {
      CHECK_FAILS(test.run(packed.substr(0, size)), 65, "in.jsonl: before byte");
      CHECK_FAILS(test.run(packed.substr(0, size)), 65, "it was cut");
    }
    CHECK_FAILS(test.run(packed + "{\"text\":\"a\"}\n"), 65, "in.jsonl: before byte");
  }
  std::string damaged = gzipped(text);
  damaged[damaged.size() / 2] = static_cast<char>(damaged[damaged.size() / 2] ^ 0x10);
  CHECK_FAILS(test.run(damaged), 65, "in.jsonl");
  CHECK(test.folder.names() == Texts{"in.jsonl"});
}

TEST_CASE("bad text is refused, replaced as Python does, or its line left out") {
  const Case test;
  struct Item {
    std::string text, replaced;
  };
  const std::string mark = "\xEF\xBF\xBD";
  const std::vector<Item> items = {
      {"a\xFF\xFE\x80z", "a" + mark + mark + mark + "z"},
      {"\xC0\xAF", mark + mark},
      {"\xED\xA0\x80", mark + mark + mark},  // a surrogate as UTF-8
      {"\xE2\x82", mark},                    // one maximal subpart
      {"\xE2\x82x", mark + "x"},
      {"\xF0\x9F\x98", mark},
      {"\xF0\x9F\x98\xF0\x9F\x98\x80", mark + "\xF0\x9F\x98\x80"},
      {"\xF4\x90\x80\x80", mark + mark + mark + mark},
      {"\\ud800", mark},
      {"\\uDC00\\ud83d\\ude00", mark + "\xF0\x9F\x98\x80"},
      {"\\ud83d\\ud83d\\ude00", mark + "\xF0\x9F\x98\x80"},
      {"\\ud83d\\u0041", mark + "A"},
      {"\\\\ud800 \\uD800", "\\ud800 " + mark},  // the first backslash escapes the second
  };
  std::string lines = "{\"text\":\"good\"}\n";
  Texts expected = {"good"};
  for (const Item& item : items) {
    const std::string line = "{\"id\":\"\xC3\xA9\", \"text\":\"" + item.text + "\"}\n";
    CAPTURE(line);
    CHECK_FAILS(test.run("{\"text\":\"good\"}\n" + line), 65, "in.jsonl:2: byte ");
    lines += line;
    expected.push_back(item.replaced);
  }
  CHECK_FAILS(test.run("{\"text\":\"\\ud800\"}\n"), 65,
              "in.jsonl:1: byte 9: an escape that is half of a surrogate pair");
  lines += "{\"text\":\"end\"}\n";
  expected.push_back("end");
  test.run(lines, {"--bad-text", "replace"});
  CHECK(test.sequences() == expected);
  auto sidecar = read_sidecar(test.folder / "out_text_document");
  REQUIRE(sidecar.has_value());
  CHECK(sidecar->bad_text == "replace");
  CHECK(sidecar->replaced_lines == static_cast<std::int64_t>(items.size()));
  test.run(lines, {"--bad-text", "skip"});
  CHECK(test.sequences() == Texts{"good", "end"});
  sidecar = read_sidecar(test.folder / "out_text_document");
  REQUIRE(sidecar.has_value());
  CHECK(sidecar->skipped_lines == static_cast<std::int64_t>(items.size()));
  CHECK(sidecar->documents == 2);
  // Replacing mends text, not JSON.
  CHECK_FAILS(test.run("{\"text\":\"\xFF\"\n", {"--bad-text", "replace"}), 65, "its bad text replaced");
  CHECK_FAILS(test.run("{}\n", {"--bad-text", "skip"}), 65, "no key 'text'");
  CHECK_FAILS(test.run("{}\n", {"--bad-text", "ignore"}), 64, "--bad-text ignore");
}

TEST_CASE("the number of threads changes nothing") {
  const Case test;
  const std::string text = many_lines(20000, 2 << 20);
  const auto bytes = [&](const char* threads) {
    test.run(text, {"--append-eod", "--threads", threads});
    std::string all;
    for (const char* end : {"bin", "idx", "json"})
      all += read_file(test.folder / ("out_text_document." + std::string(end)));
    return all;
  };
  const std::string one = bytes("1");
  CHECK(bytes("2") == one);
  CHECK(bytes("5") == one);
  // The first error of the input is the one that is told.
  std::string bad = text;
  for (std::size_t at = text.size() / 3; at < text.size(); at += text.size() / 5) bad.insert(bad.find('\n', at), "}");
  const std::string message = error_of([&] { test.run(bad, {"--threads", "1"}); });
  CHECK(message.starts_with("65: "));
  CHECK(error_of([&] { test.run(bad, {"--threads", "4"}); }) == message);
}

TEST_CASE("patterns stand for files, in the order of their names") {
  const Case test;
  for (const char* name : {"b2.jsonl", "a10.jsonl", "a9.jsonl"}) {
    write_file(test.folder / name, std::string("{\"text\":\"") + name + "\"}\n");
  }
  test.run("{\"text\":\"first\"}", {"--input", test.folder / "[ab]*.jsonl"});
  CHECK(test.sequences() == Texts{"first", "a10.jsonl", "a9.jsonl", "b2.jsonl"});
  CHECK_FAILS(test.run("", {"--input", test.folder / "c*.jsonl"}), 66, "no file matches");
  write_file(test.folder / "*.jsonl", "{\"text\":\"star\"}");  // a file of that very name comes first
  test.run("{\"text\":\"first\"}", {"--input", test.folder / "*.jsonl"});
  CHECK(test.sequences() == Texts{"first", "star"});
}

TEST_CASE("the parts of all ranks are the inputs, line by line, and lines keep their numbers") {
  const TestFolder folder;
  std::mt19937 random(11);
  std::vector<std::string> names;
  Texts lines;
  for (int file = 0; file < 4; ++file) {
    std::string text;
    for (unsigned i = 0, n = random() % 40; i < n; ++i)
      text += std::string(random() % 30, static_cast<char>('a' + i % 26)) + "\n";
    if (file % 2 == 0) text += "a last line without end";
    if (file == 3) text = gzipped(text);
    names.push_back(folder / ("f" + std::to_string(file)));
    write_file(names.back(), text);
  }
  const auto inputs = find_inputs(names);
  const std::atomic<bool> stop = false;
  const auto lines_of = [&](int rank, int ranks) {
    Texts found;
    BlockReader reader(deal_inputs(inputs, rank, ranks), 1 << 20, stop);
    while (const auto block = reader.next()) {
      std::int64_t number = 0;
      for (std::size_t begin = 0, end; begin < block->size; begin = end + 1) {
        end = std::min(block->text().find('\n', begin), block->size);
        found.push_back(block->path + ":" + std::to_string(line_number(*block, number++)) + ":" +
                        std::string(block->text().substr(begin, end - begin)));
      }
    }
    return found;
  };
  const Texts all = lines_of(0, 1);
  CHECK(all.size() > 50);
  for (int ranks = 2; ranks <= 60; ++ranks) {
    Texts together;
    for (int rank = 0; rank < ranks; ++rank) {
      const Texts mine = lines_of(rank, ranks);
      together.insert(together.end(), mine.begin(), mine.end());
    }
    CHECK(together == all);
  }
}
