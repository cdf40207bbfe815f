// SPDX-License-Identifier: Apache-2.0
/// manifest.json: form, round trip, and refusal of everything else.
#include <doctest/doctest.h>

#include <algorithm>
#include <random>

#include "checkpoint_fixture.hpp"
#include "llmtrain/base/error.hpp"
#include "llmtrain/checkpoint/folders.hpp"
#include "llmtrain/checkpoint/manifest.hpp"

using namespace llmtrain;

namespace {

Manifest example() {
  Manifest manifest;
  manifest.state = checkpoint_test::state_at(100);
  manifest.state.deck.clear();
  manifest.writers = 2;
  manifest.files = {{"checkpoint.h5", 1234, std::string(32, 'a')}, {"shard-00000.h5", 4096, std::string(32, '0')}};
  manifest.tensors = {{"/model/a/weight", DType::fp32, {3, 4}}, {"/model/b", DType::bf16, {5}}};
  manifest.deck = {2000, 17, std::string(32, 'c')};
  const auto add = [&](std::size_t tensor, std::vector<std::int64_t> start, std::vector<std::int64_t> shape,
                       std::int64_t begin, std::int64_t end, std::int64_t offset) {
    const auto& [name, dtype, whole] = manifest.tensors[tensor];
    const Piece piece{name, dtype, whole, std::move(start), std::move(shape), begin, end, nullptr};
    manifest.pieces.push_back({piece, std::string(32, 'b'), "shard-00000.h5", "", offset});
  };
  add(0, {0, 0}, {3, 2}, 0, 6, 2048);
  add(0, {0, 2}, {3, 2}, 0, 5, 2072);
  add(0, {0, 2}, {3, 2}, 5, 6, 2092);
  add(1, {0}, {5}, 0, 5, 4086);
  return manifest;
}

int code_of(const std::string& text) {
  try {
    parse_manifest(text, "m");
  } catch (const Error& error) {
    return static_cast<int>(error.code());
  }
  return 0;
}

int code_of(const Manifest& manifest) { return code_of(write_manifest(manifest)); }

}  // namespace

TEST_CASE("a manifest reads back as it was written; one member a line, the digest last") {
  const std::string text = write_manifest(example());
  const Manifest read = parse_manifest(text, "m");
  CHECK(write_manifest(read) == text);
  CHECK(read.state.counters.at("tokens") == 123456789012345);
  CHECK(read.state.identity.at("data") == "aa\"\\bb");
  CHECK(read.files[0].size == 1234);
  CHECK(read.tensors[1].dtype == DType::bf16);
  CHECK(read.bytes() == 1234 + 4096);
  REQUIRE(read.pieces.size() == 4);
  CHECK(read.pieces[3].end() == 4096);
  CHECK(read.pieces[0].dataset == "/model/a/weight");
  CHECK(read.pieces[2].dataset == "/model/a/weight+2");
  CHECK(read.pieces[3].dataset == "/model/b");
  CHECK(std::ranges::count(text, '\n') == 12);
  CHECK(text.rfind("\n\"digest\": \"") == text.size() - 47);
}

TEST_CASE("every flipped bit and every truncation of a manifest is found") {
  const std::string text = write_manifest(example());
  for (std::size_t i = 0; i < text.size(); ++i) {
    std::string changed = text;
    changed[i] = static_cast<char>(changed[i] ^ (1 << (i % 8)));
    CHECK(code_of(changed) == 83);
    CHECK(code_of(text.substr(0, i)) == 83);
  }
  CHECK(code_of(text + "\n") == 83);
  CHECK(code_of(text) == 0);
}

TEST_CASE("names, sizes and shapes that are not allowed are refused in spite of a right digest") {
  for (const char* name : {"../x", "/etc/passwd", ".hidden", "", "a b", "a/b", "x\ny"}) {
    Manifest manifest = example();
    manifest.files[0].name = name;
    CHECK_MESSAGE(code_of(manifest) == 83, name);
  }
  Manifest manifest = example();
  manifest.files[0].name = std::string(300, 'x');
  CHECK(code_of(manifest) == 83);
  manifest = example();
  manifest.files[0].size = -1;
  CHECK(code_of(manifest) == 83);
  manifest = example();
  manifest.files[1].name = manifest.files[0].name;
  CHECK(code_of(manifest) == 83);
  manifest = example();
  manifest.files[1].digest = "short";
  CHECK(code_of(manifest) == 83);
  manifest = example();
  manifest.tensors[0].shape = {std::int64_t{1} << 40, std::int64_t{1} << 40};
  CHECK(code_of(manifest) == 83);
  manifest.tensors[0].shape = {-3};
  CHECK(code_of(manifest) == 83);
  manifest.tensors[0].shape = {};
  CHECK(code_of(manifest) == 83);
  manifest = example();
  std::swap(manifest.tensors[0], manifest.tensors[1]);
  CHECK(code_of(manifest) == 83);
  manifest = example();
  manifest.tensors[0].name = "/model/../x";
  CHECK(code_of(manifest) == 83);
  manifest = example();
  manifest.state.step = -1;
  CHECK(code_of(manifest) == 83);
}

TEST_CASE("a manifest of format 1.0 has no places") {
  Manifest manifest = example();
  manifest.deck.reset();
  manifest.pieces.clear();
  const std::string text = write_manifest(manifest);
  CHECK(text.find("\"version\": [1, 0]") != std::string::npos);
  const Manifest read = parse_manifest(text, "m");
  CHECK_FALSE(read.has_places());
  CHECK(write_manifest(read) == text);
}

TEST_CASE("places outside of a shard, shared, or that leave a tensor in parts are refused") {
  const auto refused = [](const char* what, auto change) {
    Manifest manifest = example();
    change(manifest);
    CHECK_MESSAGE(code_of(manifest) == 83, what);
  };
  constexpr std::int64_t huge = std::int64_t{1} << 60;
  refused("far away", [](Manifest& m) { m.pieces[3].offset = huge; });
  refused("farther", [](Manifest& m) { m.pieces[3].offset = INT64_MAX; });
  refused("before the file", [](Manifest& m) { m.pieces[0].offset = -8; });
  refused("one byte beyond the end", [](Manifest& m) { m.pieces[3].offset += 1; });
  refused("a file that is too short", [](Manifest& m) { m.files[1].size = 4095; });
  refused("the same bytes", [](Manifest& m) { m.pieces[1].offset = m.pieces[0].offset; });
  refused("the last bytes of another", [](Manifest& m) { m.pieces[1].offset -= 1; });
  refused("bytes of the deck", [](Manifest& m) { m.deck->offset = 2040; });
  refused("a deck beyond the end", [](Manifest& m) { m.deck->offset = 4090; });
  refused("a deck far away", [](Manifest& m) { m.deck->offset = huge; });
  refused("a deck without bytes", [](Manifest& m) { m.deck->bytes = 0; });
  refused("a deck of 2^60 bytes", [](Manifest& m) { m.deck->bytes = huge; });
  refused("no shard", [](Manifest& m) { m.pieces[0].shard = "checkpoint.h5"; });
  refused("a file that is not listed", [](Manifest& m) { m.pieces[3].shard = "shard-00001.h5"; });
  refused("a foreign file", [](Manifest& m) { m.pieces[3].shard = "/etc/passwd"; });
  refused("no first shard", [](Manifest& m) { m.files.pop_back(); });
  refused("a range of 2^60", [](Manifest& m) { m.pieces[3].piece.flat_end = huge; });
  refused("a slice of 2^60", [](Manifest& m) { m.pieces[3].piece.slice_shape[0] = huge; });
  refused("a slice far away", [](Manifest& m) { m.pieces[3].piece.slice_start[0] = INT64_MAX; });
  refused("other extents", [](Manifest& m) { m.pieces[3].piece.slice_start.push_back(0); });
  refused("no extents", [](Manifest& m) { m.pieces[3].piece.slice_start.clear(); });
  refused("a hundred extents", [](Manifest& m) { m.pieces[3].piece.slice_shape.assign(100, 1); });
  refused("an empty piece", [](Manifest& m) { m.pieces[3].piece.flat_end = 0; });
  refused("a missing piece", [](Manifest& m) { m.pieces.erase(m.pieces.begin()); });
  refused("a tensor without pieces", [](Manifest& m) { m.pieces.pop_back(); });
  refused("a gap", [](Manifest& m) { m.pieces[2].piece.flat_begin = 6; });
  refused("an element twice", [](Manifest& m) { m.pieces[1].piece.flat_end = 6; });
  refused("the wrong order", [](Manifest& m) { std::swap(m.pieces[1], m.pieces[2]); });
  refused("a digest that is none", [](Manifest& m) { m.pieces[0].digest = "none"; });
}

TEST_CASE("names of step folders") {
  CHECK(step_folder_name(100) == "step-00000100");
  CHECK(step_folder_name(1234567890) == "step-1234567890");
  CHECK(parse_step_folder("step-00000100") == 100);
  CHECK(parse_step_folder("step-1234567890") == 1234567890);
  for (const char* name : {"step-100", "step-00000100.tmp.ab12", "step-0000010x", "step-", "xstep-00000100", "",
                           "step-000000100", "step-9999999999999999999"}) {
    CHECK_MESSAGE(!parse_step_folder(name), name);
  }
  CHECK(is_unfinished_name("step-00000100.tmp.ab12"));
  CHECK_FALSE(is_unfinished_name("step-00000100.damaged"));
  CHECK_FALSE(is_unfinished_name("step-00000100.tmp."));
}
