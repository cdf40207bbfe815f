// SPDX-License-Identifier: Apache-2.0
/// Fuzz target of the manifest's reader. An input is a manifest without its last line, or with one if it ends in "}\n"; the
/// target adds a right digest, which no mutation would hit.
#include <cstdint>
#include <string>

#include "llmtrain/base/digest.hpp"
#include "llmtrain/base/error.hpp"
#include "llmtrain/checkpoint/geometry.hpp"
#include "llmtrain/checkpoint/manifest.hpp"
#include "target.hpp"

namespace llmtrain::fuzz {

namespace {

/// What the rest of the program relies on.
void check_manifest(const Manifest& manifest) {
  expect(manifest.state.step >= 0 && manifest.state.samples >= 0 && manifest.writers >= 1, "a count below its least");
  for (const ManifestFile& file : manifest.files) {
    expect(valid_file_name(file.name) && file.name.find('/') == std::string::npos && file.name[0] != '.',
           "a file name");
    expect(file.size >= 0 && file.digest.size() == 32, "a file's size or digest");
  }
  std::string last;
  for (const ManifestTensor& tensor : manifest.tensors) {
    expect(valid_dataset_name(tensor.name) && last < tensor.name, "a tensor's name");
    last = tensor.name;
    const std::int64_t volume = checked_volume(tensor.shape);
    expect(!tensor.shape.empty() && volume >= 1 && volume <= INT64_MAX / size_of(tensor.dtype), "a tensor's shape");
  }
  // What was read can be written, and is then read as the same.
  const std::string text = write_manifest(manifest);
  expect(write_manifest(parse_manifest(text, "m")) == text, "the manifest as written again");
}

void try_text(const std::string& text) {
  try {
    check_manifest(parse_manifest(text, "manifest.json"));
  } catch (const Error& error) {
    const bool documented =
        error.code() == ExitCode::checkpoint_damaged || error.code() == ExitCode::checkpoint_incompatible;
    expect(documented && std::string(error.what()).starts_with("manifest.json"), error.what());
  }
}

/// A manifest without its digest.
std::string body(const Manifest& manifest) {
  const std::string text = write_manifest(manifest);
  return text.substr(0, text.rfind('\n', text.size() - 2) + 1);
}

}  // namespace

void try_bytes(std::string_view bytes) {
  const std::string text(bytes);
  try_text(text);
  try_text(text + "\"digest\": \"" + digest_of(bytes) + "\"}\n");
}

std::vector<std::string> seeds() {
  Manifest manifest;
  std::vector<std::string> all{body(manifest)};
  manifest.state.step = 100;
  manifest.state.run_id = "0123abcd";
  manifest.state.samples = 6400;
  manifest.state.counters = {{"skipped", 3}, {"tokens", 123456789012345}};
  manifest.state.identity = {{"data", "aa\"\\bb"}, {"tokenizer", "bytes"}};
  manifest.writers = 2;
  manifest.files = {{"checkpoint.h5", 1234, std::string(32, 'a')}, {"shard-00000.h5", 0, std::string(32, '0')}};
  manifest.tensors = {{"/model/a/weight", DType::fp32, {3, 4}}, {"/model/b", DType::bf16, {5}}};
  all.push_back(body(manifest));
  all.push_back(write_manifest(manifest));
  std::string newer = all[1];
  newer.replace(newer.find("[1, 0]"), 6, "[2, 0]");
  all.push_back(newer);
  return all;
}

}  // namespace llmtrain::fuzz
