// SPDX-License-Identifier: Apache-2.0
/// Fuzz target of the manifest's reader. An input is a manifest without its last line, or with one if it ends in "}\n"; the
/// target adds a right digest, which no mutation would hit.
#include <cstdint>
#include <map>
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
  std::map<std::string_view, std::int64_t> sizes;
  for (const ManifestFile& file : manifest.files) sizes[file.name] = file.size;
  std::map<std::string, std::vector<const Piece*>> by_tensor;
  for (const StoredPiece& stored : manifest.pieces) {
    expect(piece_error(stored.piece).empty() && stored.piece.size() > 0, "a piece's shape");
    const auto size = sizes.find(stored.shard);
    expect(size != sizes.end() && stored.offset >= 0 && stored.end() <= size->second, "a piece's place");
    by_tensor[stored.piece.dataset].push_back(&stored.piece);
  }
  for (const auto& [name, pieces] : by_tensor)
    expect(coverage_error(pieces).empty(), "what the pieces of a tensor cover");
  expect(by_tensor.size() == (manifest.has_places() ? manifest.tensors.size() : 0), "a tensor without pieces");
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
  const auto piece = [](const ManifestTensor& tensor, std::vector<std::int64_t> start, std::vector<std::int64_t> shape,
                        std::int64_t begin, std::int64_t end, std::int64_t offset) {
    const Piece part{tensor.name, tensor.dtype, tensor.shape, std::move(start), std::move(shape), begin, end, nullptr};
    return StoredPiece{part, std::string(32, 'b'), "shard-00000.h5", "", offset};
  };
  Manifest placed = manifest;
  placed.files[1].size = 4096;
  placed.deck = {2000, 17, std::string(32, 'c')};
  placed.pieces = {
      piece(placed.tensors[0], {0, 0}, {3, 2}, 0, 6, 2048), piece(placed.tensors[0], {0, 2}, {3, 2}, 0, 5, 2072),
      piece(placed.tensors[0], {0, 2}, {3, 2}, 5, 6, 2092), piece(placed.tensors[1], {0}, {5}, 0, 5, 4086)};
  all.push_back(body(placed));
  std::string newer = all[1];
  newer.replace(newer.find("[1, 0]"), 6, "[2, 0]");
  all.push_back(newer);
  return all;
}

}  // namespace llmtrain::fuzz
