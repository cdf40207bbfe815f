// SPDX-License-Identifier: Apache-2.0
// label: full
/// Sets of more than 2^31 bytes and 2^32 tokens, merged, written and read. Their inputs are files of holes.
#include <doctest/doctest.h>

#include <fstream>
#include <limits>

#include "data_files.hpp"
#include "llmtrain/data/source_dataset.hpp"
#include "llmtrain/tools/tool.hpp"

using namespace llmtrain;

namespace {

constexpr std::int64_t most = std::numeric_limits<std::int32_t>::max();  // tokens of a sequence

template <class T>
std::string raw(T value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

/// Two sequences of 2^31 - 1 tokens in all, zeros but for the last one of each, in about 4 GB.
void write_holes(const std::string& prefix, std::uint16_t last_of_first, std::uint16_t last) {
  const auto first = static_cast<std::int32_t>(most / 3), second = static_cast<std::int32_t>(most - most / 3);
  std::string index(index_magic, sizeof index_magic);
  index += raw(index_version) + raw(std::uint8_t{8}) + raw(std::uint64_t{2}) + raw(std::uint64_t{3});
  index += raw(first) + raw(second) + raw(std::int64_t{0}) + raw(std::int64_t{2} * first);
  index += raw(std::int64_t{0}) + raw(std::int64_t{1}) + raw(std::int64_t{2});
  write_file(prefix + ".idx", index);
  write_file(prefix + ".bin", "");
  std::filesystem::resize_file(prefix + ".bin", static_cast<std::uintmax_t>(2 * most));
  std::fstream bin(prefix + ".bin", std::ios::in | std::ios::out | std::ios::binary);
  bin.seekp(2 * first - 2);
  bin << raw(last_of_first);
  bin.seekp(-2, std::ios::end);
  bin << raw(last);
}

std::int32_t token_at(const IndexedDataset& set, std::int64_t sequence, std::int64_t offset) {
  std::int32_t token = -1;
  set.read(sequence, offset, std::span(&token, 1));
  return token;
}

}  // namespace

TEST_CASE("sets of more than 2^31 bytes make one of more than 2^32 tokens (B29, B32, B41)") {
  const TestFolder folder;
  for (int i = 0; i < 3; ++i) {
    write_holes(folder / ("part" + std::to_string(i)), static_cast<std::uint16_t>(10 + i),
                static_cast<std::uint16_t>(20 + i));
  }
  const std::string prefix = folder / "all";
  REQUIRE(tool_data(MpiComm{}, std::vector<std::string>{"merge", folder / "part0", folder / "part1", folder / "part2",
                                                        "--output", prefix}) == 0);
  const auto set = std::make_shared<const IndexedDataset>(prefix);
  CHECK(set->tokens() == 3 * most);
  CHECK(set->tokens() > std::int64_t{1} << 32);
  CHECK(set->documents() == 6);
  for (std::int64_t s = 0; s < 6; ++s) {
    CHECK(token_at(*set, s, 0) == 0);
    CHECK(token_at(*set, s, set->length(s) - 1) == (s % 2 == 0 ? 10 : 20) + s / 2);
  }
  // A sample over the border of the last two sequences, in the order of the file.
  const std::int64_t border = set->first_token(5);
  std::vector<std::int32_t> around(4);
  set->read_tokens(border - 2, around);
  CHECK(around == std::vector<std::int32_t>{0, 12, 0, 0});
  const SourceDataset samples(set, {0, 6}, std::int64_t{1} << 20, 0, 5);
  CHECK(samples.samples() == (3 * most - 1) >> 20);
  const StreamPlace last = samples.index().place(3 * most - 1);
  CHECK(last.position == 5);
}
