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
  manifest.files = {{"checkpoint.h5", 1234, std::string(32, 'a')}, {"shard-00000.h5", 0, std::string(32, '0')}};
  manifest.tensors = {{"/model/a/weight", DType::fp32, {3, 4}}, {"/model/b", DType::bf16, {5}}};
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
  CHECK(read.bytes() == 1234);
  CHECK(std::ranges::count(text, '\n') == 11);
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
