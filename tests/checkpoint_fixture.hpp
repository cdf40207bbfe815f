// SPDX-License-Identifier: Apache-2.0
/// Shared by the checkpoint tests: a scratch folder, and tensors whose values follow from their global index, cut over
/// ranks with two-way slices and uneven ranges.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "llmtrain/checkpoint/geometry.hpp"
#include "llmtrain/checkpoint/piece.hpp"

namespace checkpoint_test {

/// A folder of its own, removed at the end.
class Scratch {
 public:
  Scratch() {
    std::string name = (std::filesystem::temp_directory_path() / "llmtrain-test-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) std::abort();
    path_ = name;
  }
  ~Scratch() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

inline std::string slurp(const std::filesystem::path& path) {
  std::ifstream stream(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

inline void spill(const std::filesystem::path& path, const std::string& bytes) {
  std::ofstream stream(path, std::ios::binary | std::ios::trunc);
  stream.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

/// All regular files of a folder by name.
inline std::map<std::string, std::string> contents(const std::filesystem::path& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    files[entry.path().filename().string()] = slurp(entry.path());
  }
  return files;
}

/// A global tensor; `split` is the extent that tensor parallelism cuts, or -1 for one that all ranks hold whole.
struct Row {
  std::string name;
  llmtrain::DType dtype;
  std::vector<std::int64_t> shape;
  int split;
};

inline std::vector<Row> table() {
  using llmtrain::DType;
  return {{"/model/embed_tokens/weight", DType::fp32, {13, 6}, 0},
          {"/model/layers/0/self_attn/q_proj/weight", DType::fp32, {8, 6}, 0},
          {"/model/layers/0/self_attn/o_proj/weight", DType::fp32, {6, 8}, 1},
          {"/model/layers/0/input_layernorm/weight", DType::fp64, {7}, -1},
          {"/optimizer/exp_avg/layers/0/self_attn/o_proj/weight", DType::bf16, {6, 8}, 1},
          {"/model/norm/weight", DType::fp32, {1}, -1}};
}

/// Memory of one rank and its pieces of all tensors.
struct Shard {
  std::vector<std::vector<std::byte>> memory;
  std::vector<llmtrain::Piece> pieces;
};

/// Writes the value of global element `index` of tensor `row` in its own format: any injective rule does.
inline void put_value(llmtrain::DType dtype, std::size_t row, std::int64_t index, std::byte* at) {
  const double value = static_cast<double>(row) * 1000 + static_cast<double>(index) + 0.5;
  if (dtype == llmtrain::DType::fp64) {
    std::memcpy(at, &value, sizeof value);
  } else if (dtype == llmtrain::DType::fp32) {
    const auto single = static_cast<float>(value);
    std::memcpy(at, &single, sizeof single);
  } else {
    const auto bits = static_cast<std::uint16_t>(0x3f80 + index);
    std::memcpy(at, &bits, sizeof bits);
  }
}

/// Fills a piece's memory with the values that its place in the global array asks for.
inline void fill(const llmtrain::Piece& piece, std::size_t row) {
  std::vector<std::int64_t> strides(piece.global_shape.size(), 1);
  for (std::size_t i = strides.size(); i-- > 1;) strides[i - 1] = strides[i] * piece.global_shape[i];
  for (std::int64_t i = 0; i < piece.size(); ++i) {
    std::int64_t flat = piece.flat_begin + i;
    std::int64_t global = 0;
    for (std::size_t d = piece.slice_shape.size(); d-- > 0;) {
      global += (piece.slice_start[d] + flat % piece.slice_shape[d]) * strides[d];
      flat /= piece.slice_shape[d];
    }
    put_value(piece.dtype, row, global, static_cast<std::byte*>(piece.data) + i * llmtrain::size_of(piece.dtype));
  }
}

/// What rank `rank` of `size` holds: slices over `tensor` ranks (extents that do not divide are cut unevenly), ranges
/// over the others. Some ranges are empty.
inline Shard shard_of(int rank, int size, int tensor, bool filled) {
  Shard shard;
  const std::vector<Row> rows = table();
  for (std::size_t r = 0; r < rows.size(); ++r) {
    const Row& row = rows[r];
    llmtrain::Piece piece;
    piece.dataset = row.name;
    piece.dtype = row.dtype;
    piece.global_shape = row.shape;
    piece.slice_start.assign(row.shape.size(), 0);
    piece.slice_shape = row.shape;
    std::int64_t part = rank;
    std::int64_t parts = size;
    if (row.split >= 0) {
      const auto axis = static_cast<std::size_t>(row.split);
      const std::int64_t slice = rank % tensor;
      piece.slice_start[axis] = row.shape[axis] * slice / tensor;
      piece.slice_shape[axis] = row.shape[axis] * (slice + 1) / tensor - piece.slice_start[axis];
      part = rank / tensor;
      parts = size / tensor;
    }
    // Quadratic cuts: ranges of very different lengths that end inside of rows.
    const std::int64_t volume = llmtrain::checked_volume(piece.slice_shape);
    piece.flat_begin = volume * part * part / (parts * parts);
    piece.flat_end = volume * (part + 1) * (part + 1) / (parts * parts);
    shard.memory.emplace_back(static_cast<std::size_t>(piece.bytes()), std::byte{0xee});
    piece.data = shard.memory.back().data();
    if (filled) fill(piece, r);
    shard.pieces.push_back(std::move(piece));
  }
  return shard;
}

inline llmtrain::CheckpointState state_at(std::int64_t step) {
  llmtrain::CheckpointState state;
  state.step = step;
  state.run_id = "0123abcd";
  state.deck = "run:\n  name: \"t\u00e9st\"\nmodel: {layers: 1}\n";
  state.samples = 6400;
  state.counters = {{"skipped", 3}, {"tokens", 123456789012345}};
  state.identity = {{"data", "aa\"\\bb"}, {"tokenizer", "bytes"}};
  return state;
}

}  // namespace checkpoint_test
