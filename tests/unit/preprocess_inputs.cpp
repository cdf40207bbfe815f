// SPDX-License-Identifier: Apache-2.0
/// What preprocess reads: packed files, text that is not Unicode, patterns, parts of ranks, any number of threads.
#include <doctest/doctest.h>
#include <zlib.h>
#include <zstd.h>

#include <atomic>
#include <random>

#include "llmtrain/base/files.hpp"
#include "llmtrain/data/sidecar.hpp"
#include "llmtrain/tools/line_blocks.hpp"
#include "preprocess_case.hpp"

using namespace llmtrain;

namespace {

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
    all += "{\"text\":\"";
    all.append(random() % (i % 100 == 0 ? longest : 200), static_cast<char>('a' + i % 26));
    all += "\"}\n";
  }
  return all;
}

}  // namespace

TEST_CASE("gzip and Zstandard, by content, also of several parts; cut or damaged ones are refused") {
  const PreprocessCase test;
  const std::string text = many_lines(500, 3 << 20);
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
    std::filesystem::remove(test.folder / (std::string("out_text_document.") + end));
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

TEST_CASE("bad text is refused, replaced as Python does, or its line left out (B10)") {
  const PreprocessCase test;
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
  const PreprocessCase test;
  const std::string text = many_lines(5000, 400'000);
  const auto bytes = [&](const char* threads) {
    test.run(text, {"--append-eod", "--threads", threads});
    std::string all;
    for (const char* end : {"bin", "idx", "json"})
      all += read_file(test.folder / (std::string("out_text_document.") + end));
    return all;
  };
  const std::string one = bytes("1");
  CHECK(bytes("2") == one);
  CHECK(bytes("5") == one);
  // The first error of the input is the one that is told.
  std::string bad = text;
  for (std::size_t at = text.size() / 3; at < text.size(); at += text.size() / 5)
    bad.insert(bad.find('\n', at), 1, '}');
  const std::string message = error_of([&] { test.run(bad, {"--threads", "1"}); });
  CHECK(message.starts_with("65: "));
  CHECK(error_of([&] { test.run(bad, {"--threads", "4"}); }) == message);
}

TEST_CASE("patterns stand for files, in the order of their names") {
  const PreprocessCase test;
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
    for (unsigned i = 0, n = random() % 40; i < n; ++i) {
      text.append(random() % 30, static_cast<char>('a' + i % 26));
      text += '\n';
    }
    if (file % 2 == 0) text += "a last line without end";
    if (file == 3) text = gzipped(text);
    names.push_back(folder / std::to_string(file));
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
  CHECK(all.size() > 40);
  for (int ranks = 2; ranks <= 20; ++ranks) {
    Texts together;
    for (int rank = 0; rank < ranks; ++rank) {
      const Texts mine = lines_of(rank, ranks);
      together.insert(together.end(), mine.begin(), mine.end());
    }
    CHECK(together == all);
  }
}
