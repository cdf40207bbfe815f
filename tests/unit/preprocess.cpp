// SPDX-License-Identifier: Apache-2.0
/// llmtrain preprocess: documents in, token files out; every malformed line named; nothing left after a failure.
#include "llmtrain/tools/tool.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "llmtrain/data/sidecar.hpp"
#include "llmtrain/tools/json_lines.hpp"
#include "llmtrain/tools/line_blocks.hpp"
#include "preprocess_case.hpp"
#include "tokenizer_files.hpp"

using namespace llmtrain;

TEST_CASE("lines become documents, with and without the end of document (B35)") {
  const PreprocessCase test;
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

TEST_CASE("empty documents: an entry, no sequence, no end of document, at any place (B16)") {
  const PreprocessCase test;
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

TEST_CASE("only a line feed ends a line (B20)") {
  const PreprocessCase test;
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

TEST_CASE("repeated keys: the last one counts; fields that are not read may hold anything that is JSON (B24)") {
  const PreprocessCase test;
  test.run(
      "{\"text\":\"first\", \"text\":\"second\", \"te\\u0078t\":\"third\"}\n"
      "{\"n\":null, \"text\":\"a\", \"x\":[1,{\"text\":\"inner\"},-0.5e+10], \"big\":123456789012345678901234567890}\n"
      "{\"n\":\"s\", \"x\":{}, \"big\":1e999, \"t\":true, \"text\":\"b\", \"y\":[]}\n");
  CHECK(test.sequences() == Texts{"third", "a", "b"});
  CHECK(read_sidecar(test.folder / "out_text_document")->repeated_keys == 1);
}

TEST_CASE("two keys make two sets; a failure in the second leaves neither (B23)") {
  const PreprocessCase test;
  test.run("{\"b\":\"bee\", \"a\":\"\"}\n{\"a\":\"ay\", \"b\":\"b\"}\n", {"--json-keys", "a,b"});
  CHECK(test.sequences("a") == Texts{"ay"});
  CHECK(test.sequences("b") == Texts{"bee", "b"});
  const PreprocessCase other;
  CHECK_FAILS(other.run("{\"b\":\"bee\", \"a\":\"ay\"}\n{\"a\":\"ay\"}\n", {"--json-keys", "a,b"}), 65, "in.jsonl:2");
  CHECK(other.folder.names() == Texts{"in.jsonl"});
}

TEST_CASE("a malformed line is named by file, line and byte, and nothing is left (B22)") {
  const PreprocessCase test;
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
  for (const char control : {'\t', '\v', '\f'})  // must be escaped
    refuse(std::string("{\"text\":\"a") + control + "b\"}", "byte ");
  refuse("\xEF\xBB\xBF{\"text\":\"a\"}", "byte order mark");
  CHECK_FAILS(test.run(good + "{\"text\":\"the file was cu"), 65, "in.jsonl:2: byte 14");
  CHECK(test.folder.names() == Texts{"in.jsonl"});
}

TEST_CASE("bytes that are not UTF-8 are found to the byte (B10)") {
  const PreprocessCase test;
  for (const std::string bad :
       {"\xFF\xFE\x80", "\xC0\xAF", "\xED\xA0\x80", "\xE2\x82", "\xF4\x90\x80\x80", "\x80", "\xF0\x8F\xBF\xBF"}) {
    CAPTURE(bad);
    CHECK_FAILS(test.run("{\"text\":\"\xC3\xA9\"}\n{\"text\":\"\xE2\x82\xAC" + bad + "\"}\n"), 65,
                "in.jsonl:2: byte 26: bytes that are not UTF-8");
  }
  CHECK(find_bad_text("a\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80").at == std::string_view::npos);
}

TEST_CASE("lines of any length up to the cap, wherever buffers end (B18)") {
  constexpr std::size_t block = BlockReader::block_bytes;
  const std::string frame = "{\"text\":\"\"}", first = "{\"text\":\"a\"}\n";
  const auto check = [&](std::size_t bytes) {
    CAPTURE(bytes);
    const PreprocessCase test;
    const std::string text(bytes - frame.size(), 'x');
    test.run(first + "{\"text\":\"" + text + "\"}\n{\"text\":\"z\"}\n");
    CHECK(test.sequences() == Texts{"a", text, "z"});
  };
  for (const std::size_t end : {block, 2 * block, 4 * block}) {  // of a buffer, as it grows for a long line
    // The line as long as the buffer, and one that ends with it, by a byte less and more; and simdjson's margin.
    for (const std::size_t bytes : {end, end - first.size(), end - json_padding})
      for (const std::size_t one : {0, 1, 2}) check(bytes + one - 1);
  }
  check(20 * block);
  const PreprocessCase test;
  CHECK(test.run("{\"text\":\"123456789\"}\n", {"--max-line-bytes", "20"}) == 0);
  CHECK_FAILS(test.run("\n{\"text\":\"1234567890\"}\n", {"--max-line-bytes", "20"}), 65,
              "in.jsonl:2: the line at byte 1");
  CHECK_FAILS(test.run("{\"text\":\"1234567890\"}", {"--max-line-bytes", "20"}), 65, "--max-line-bytes");
}

TEST_CASE("several inputs are one set") {
  const PreprocessCase test;
  write_file(test.folder / "more", "{\"text\":\"m\"}");
  test.run("{\"text\":\"a\"}", {"--input", test.folder / "more"});
  CHECK(test.sequences() == Texts{"a", "m"});
}

TEST_CASE("an end of document that a tokenizer does not have is asked for by name (B15)") {
  const PreprocessCase test;
  write_file(test.input, "{\"text\":\"ab\"}\n");
  JsonTokenizer json;
  json.added = fmt::format("[{}]", added_token("<e>", 256));
  write_file(test.folder / "tokenizer.json", json.text());
  const auto run = [&](const std::vector<std::string>& options) {
    std::vector<std::string> args = {"--input",           test.input,    "--output-prefix",
                                     test.folder / "out", "--tokenizer", test.folder / "tokenizer.json"};
    args.insert(args.end(), options.begin(), options.end());
    return tool_preprocess(MpiComm{}, args);
  };
  CHECK_FAILS(run({"--append-eod"}), 64, "has no end-of-document token; name one with --eod");
  CHECK(test.folder.names() == Texts{"in.jsonl", "tokenizer.json"});
  CHECK(run({}) == 0);
  CHECK(test.sequences() == Texts{"ab"});
  CHECK(run({"--append-eod", "--eod", "<e>"}) == 0);
  CHECK(test.sequences() == Texts{"ab$"});
}

TEST_CASE("wrong command lines, inputs and outputs") {
  const PreprocessCase test;
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
