// SPDX-License-Identifier: Apache-2.0
/// .bin/.idx files: the bytes written, round trips, every kind of damage refused, files that change while in use.
#include "llmtrain/data/indexed_dataset.hpp"

#include <doctest/doctest.h>
#include <sys/resource.h>

#include <algorithm>
#include <csignal>
#include <initializer_list>
#include <limits>

#include "data_files.hpp"

using namespace llmtrain;

namespace {

template <class T>
std::string raw(T value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

std::string joined(std::initializer_list<std::string> parts) {
  std::string all;
  for (const std::string& part : parts) all.append(part);
  return all;
}

const std::string magic("MMIDIDX\0\0", 9);

/// Three documents: two sequences, none, one sequence.
std::string sound_index() {
  const auto eight = [](std::int64_t value) { return raw(value); };
  return joined({magic, eight(1), raw(std::uint8_t{8}), eight(3), eight(4), raw(2), raw(0), raw(3), eight(0), eight(4),
                 eight(4), eight(0), eight(2), eight(2), eight(3)});
}
constexpr std::int64_t sound_bin_bytes = 10;

IndexView parse(const std::string& bytes, std::int64_t bin_bytes = sound_bin_bytes) {
  return parse_index(std::as_bytes(std::span(bytes)), bin_bytes, "set.idx");
}

template <class T>
std::string changed(std::size_t offset, T value) {
  std::string bytes = sound_index();
  std::memcpy(bytes.data() + offset, &value, sizeof value);
  return bytes;
}

}  // namespace

TEST_CASE("the writer's bytes are the format's") {
  const TestFolder folder;
  IndexedDatasetWriter writer(folder / "set", 257);
  writer.add_sequence(std::vector<std::int32_t>{7, 256});
  writer.add_sequence({});
  writer.end_document();
  writer.end_document();
  writer.add_sequence(std::vector<std::int32_t>{1, 2, 3});
  writer.end_document();
  writer.finish();
  CHECK(writer.tokens() == 5);
  CHECK(writer.max_token() == 256);
  CHECK_FALSE(std::filesystem::exists(folder / "set.bin"));
  publish(writer.files());
  CHECK(read_file(folder / "set.idx") == sound_index());
  CHECK(read_file(folder / "set.bin") == std::string("\7\0\0\1\1\0\2\0\3\0", 10));

  const IndexedDataset set(folder / "set");
  CHECK(set.sequences() == 3);
  CHECK(set.documents() == 3);
  CHECK(set.tokens() == 5);
  CHECK(set.document_of(0) == 0);
  CHECK(set.document_of(1) == 0);
  CHECK(set.document_of(2) == 2);
  std::vector<std::int32_t> tokens(2);
  set.read(2, 1, tokens);
  CHECK(tokens == std::vector<std::int32_t>{2, 3});
}

TEST_CASE("both token types make the round trip, across all buffers") {
  for (const std::int64_t vocab : {65499, 65500}) {
    const TestFolder folder;
    const std::vector<std::int64_t> lengths = {10000, 1, 70000, 5000};
    write_set(folder / "set", lengths, vocab, 65499);
    const IndexedDataset set(folder / "set");
    CHECK(set.type() == (vocab < 65500 ? TokenType::uint16 : TokenType::int32));
    std::int32_t next = 0;
    for (std::int64_t i = 0; i < set.sequences(); ++i) {
      REQUIRE(set.length(i) == lengths[static_cast<std::size_t>(i)]);
      std::vector<std::int32_t> tokens(static_cast<std::size_t>(set.length(i)));
      set.read(i, 0, tokens);
      CHECK(std::all_of(tokens.begin(), tokens.end(), [&](std::int32_t token) { return token == next++ % 65499; }));
    }
  }
}

TEST_CASE("many documents go through the writer's copying in pieces") {
  const TestFolder folder;
  IndexedDatasetWriter writer(folder / "set", 257);
  for (std::int32_t i = 0; i < 150000; ++i) {
    if (i % 3 != 0) writer.add_sequence(std::vector<std::int32_t>(static_cast<std::size_t>(i % 4), i % 257));
    writer.end_document();
  }
  writer.finish();
  publish(writer.files());
  const IndexedDataset set(folder / "set");
  CHECK(set.sequences() == 100000);
  CHECK(set.documents() == 150000);
  CHECK(set.document_of(99999) == 149999);
  CHECK(set.document_of(66666) == 100000);
}

TEST_CASE("a set without sequences is a set") {
  const TestFolder folder;
  IndexedDatasetWriter writer(folder / "set", 257);
  writer.end_document();
  writer.finish();
  publish(writer.files());
  const IndexedDataset set(folder / "set");
  CHECK(set.sequences() == 0);
  CHECK(set.documents() == 1);
}

TEST_CASE("a writer refuses ids outside its vocabulary and leaves nothing when it is given up") {
  const TestFolder folder;
  {
    IndexedDatasetWriter writer(folder / "set", 257);
    CHECK_FAILS(writer.add_sequence(std::vector<std::int32_t>{1, 257}), 65, "token id 257");
    CHECK_FAILS(writer.add_sequence(std::vector<std::int32_t>{1, -4}), 65, "token id -4");
    CHECK_FALSE(folder.names().empty());
  }
  CHECK(folder.names().empty());
  CHECK_FAILS(IndexedDatasetWriter(folder / "no/set", 257), 73, "no/set.bin");
}

TEST_CASE("a full disk is an error and leaves nothing") {
  const TestFolder folder;
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit old_limit{};
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &old_limit) == 0);
  rlimit limit = old_limit;
  limit.rlim_cur = 100000;
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &limit) == 0);
  const std::string message = error_of([&] { write_set(folder / "set", {60000}); });
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &old_limit) == 0);
  std::signal(SIGXFSZ, old_handler);
  CHECK(message.starts_with("74: "));
  CHECK(message.find("set.bin") != std::string::npos);
  CHECK(folder.names().empty());
}

TEST_CASE("a rename that fails takes the others back") {
  const TestFolder folder;
  std::filesystem::create_directory(folder / "set.idx");
  CHECK_FAILS(write_set(folder / "set", {5}), 73, "set.idx");
  CHECK(folder.names() == std::vector<std::string>{"set.idx"});
}

TEST_CASE("damage anywhere in an index is refused with its byte and value") {
  REQUIRE(parse(sound_index()).tokens == 5);
  CHECK_FAILS(parse(sound_index().substr(0, 33)), 65, "33 bytes");
  CHECK_FAILS(parse(""), 65, "0 bytes");
  CHECK_FAILS(parse(changed(0, 'X')), 65, "byte 0");
  CHECK_FAILS(parse(changed(8, 'X')), 65, "byte 0");
  for (const std::uint64_t version : {std::uint64_t{0}, std::uint64_t{2}, ~std::uint64_t{0}}) {
    CHECK_FAILS(parse(changed(9, version)), 65, fmt::format("version {}", version));
  }
  for (const int code : {0, 1, 5, 6, 7, 9, 255}) {
    CHECK_FAILS(parse(changed(17, static_cast<std::uint8_t>(code))), 65,
                fmt::format("byte 17: token type code {}", code));
  }
  CHECK_FAILS(parse(changed(17, std::uint8_t{4})), 65, ".bin file");
  // Counts: small, large, and such that a product wraps round to the right size.
  for (const std::uint64_t count : {std::uint64_t{0}, std::uint64_t{2}, std::uint64_t{4}, ~std::uint64_t{0},
                                    std::uint64_t{1} << 63, 3 + (std::uint64_t{1} << 62)}) {
    CHECK_FAILS(parse(changed(18, count)), 65, fmt::format("{} sequences", count));
    if (count != 4) CHECK_FAILS(parse(changed(26, count)), 65, fmt::format("{} document bounds", count));
  }
  CHECK_FAILS(parse(changed(26, 4 + (std::uint64_t{1} << 61))), 65, "byte 26");
  CHECK_FAILS(parse(sound_index() + '\0'), 65, "byte 26");
  CHECK_FAILS(parse(changed(34, -1)), 65, "byte 34: the length of sequence 0 is -1");
  CHECK_FAILS(parse(changed(42, std::numeric_limits<std::int32_t>::max())), 65, "sequence 2 ends at byte 4294967298");
  CHECK_FAILS(parse(changed(34, 1)), 65, "sequence 1 is said to start at byte 4");
  for (const std::int64_t offset : {std::int64_t{-4}, std::int64_t{2}, std::numeric_limits<std::int64_t>::max()}) {
    CHECK_FAILS(parse(changed(54, offset)), 65, fmt::format("byte 54: sequence 1 is said to start at byte {}", offset));
  }
  CHECK_FAILS(parse(changed(70, std::int64_t{1})), 65, "byte 70: entry 0 of the document index is 1");
  CHECK_FAILS(parse(changed(78, std::int64_t{4})), 65, "byte 78: entry 1 of the document index is 4");
  CHECK_FAILS(parse(changed(86, std::int64_t{1})), 65, "byte 86: entry 2 of the document index is 1");
  CHECK_FAILS(parse(changed(94, std::int64_t{2})), 65, "ends at 2");
  CHECK_FAILS(parse(sound_index(), 8), 65, "which has 8 bytes");
  CHECK_FAILS(parse(sound_index(), 12), 65, "has 12");
}

TEST_CASE("any single changed byte either is refused or leaves a view inside its bounds") {
  const std::string sound = sound_index();
  int refused = 0;
  for (std::size_t i = 0; i < sound.size(); ++i) {
    for (const int flip : {1, 0x80, 0xFF}) {
      std::string bytes = sound;
      bytes[i] = static_cast<char>(bytes[i] ^ flip);
      const std::string message = error_of([&] { parse(bytes); });
      if (message != "no error") {
        CHECK(message.starts_with("65: set.idx: "));
        ++refused;
      }
    }
  }
  // Only a document bound may still make sense after a change: entries 1 and 2, from 2 to 3 by one bit.
  CHECK(refused >= static_cast<int>(3 * sound.size()) - 3);
}

TEST_CASE("missing files, and a .bin file that is cut before or during use") {
  const TestFolder folder;
  CHECK_FAILS(IndexedDataset(folder / "none"), 66, "none.idx");
  CHECK_FAILS(IndexedDataset(folder / ""), 66, ".idx");
  write_set(folder / "set", {20, 30});
  const IndexedDataset set(folder / "set");
  std::filesystem::resize_file(folder / "set.bin", 60);
  std::vector<std::int32_t> tokens(30);
  CHECK_FAILS(set.read(1, 0, tokens), 65, "set.bin ends before byte 100");
  CHECK_FAILS(IndexedDataset(folder / "set"), 65, "which has 60 bytes");
  std::filesystem::resize_file(folder / "set.bin", 102);
  CHECK_FAILS(IndexedDataset(folder / "set"), 65, "has 102");
  set.require_unchanged();
  std::filesystem::resize_file(folder / "set.idx", 50);
  CHECK_FAILS(set.require_unchanged(), 65, "set.idx has 50 bytes");
  std::filesystem::remove(folder / "set.bin");
  CHECK_FAILS(IndexedDataset(folder / "set"), 66, "set.bin");
}

TEST_CASE("offsets beyond 2^32 bytes: a sparse file of 17 GB") {
  const TestFolder folder;
  const std::int32_t most = std::numeric_limits<std::int32_t>::max();
  std::string index = joined({magic, raw(std::uint64_t{1}), raw(std::uint8_t{8}), raw(std::uint64_t{4}),
                              raw(std::uint64_t{5}), raw(most), raw(most), raw(most), raw(most)});
  for (std::int64_t i = 0; i < 4; ++i) index += raw(i * 2 * most);
  for (std::int64_t i = 0; i < 5; ++i) index += raw(i);
  write_file(folder / "set.idx", index);
  write_file(folder / "set.bin", "");
  std::filesystem::resize_file(folder / "set.bin", std::uintmax_t{8} * static_cast<std::uintmax_t>(most));
  {
    std::fstream bin(folder / "set.bin", std::ios::in | std::ios::out | std::ios::binary);
    bin.seekp(-4, std::ios::end);
    bin << raw(std::uint16_t{41}) << raw(std::uint16_t{42});
  }
  const IndexedDataset set(folder / "set");
  CHECK(set.tokens() == std::int64_t{4} * most);
  std::vector<std::int32_t> tokens(3);
  set.read(3, std::int64_t{most} - 3, tokens);
  CHECK(tokens == std::vector<std::int32_t>{0, 41, 42});
}
