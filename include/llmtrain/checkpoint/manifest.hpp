// SPDX-License-Identifier: Apache-2.0
/// manifest.json: what a step folder holds, in one JSON object with one member a line, closed by its own digest.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "llmtrain/base/dtype.hpp"
#include "llmtrain/checkpoint/piece.hpp"

namespace llmtrain {

/// Major version of the format: a reader refuses newer ones. A newer minor version only adds members.
inline constexpr int checkpoint_format_major = 1;
inline constexpr int checkpoint_format_minor = 0;

inline constexpr const char* manifest_name = "manifest.json";

/// A file of the step folder; the digest is XXH3-128 as `xxhsum -H2` prints it.
struct ManifestFile {
  std::string name;
  std::int64_t size = 0;  ///< bytes
  std::string digest;
};

struct ManifestTensor {
  std::string name;  ///< dataset path
  DType dtype = DType::fp32;
  std::vector<std::int64_t> shape;
};

struct Manifest {
  CheckpointState state;  ///< without the deck, which is a dataset
  int writers = 1;        ///< ranks of the run that saved
  std::vector<ManifestFile> files;
  std::vector<ManifestTensor> tensors;  ///< sorted by name

  std::int64_t bytes() const;  ///< of all files
};

/// The text of manifest.json.
std::string write_manifest(const Manifest& manifest);

/// Reads it back. Throws checkpoint_damaged for any byte that differs and for names, sizes, types or shapes that are
/// not allowed; checkpoint_incompatible for a newer major version. `where` names the file in messages.
Manifest parse_manifest(std::string_view text, std::string_view where);

/// True for a plain file name: [A-Za-z0-9._-]+, no leading dot, at most 255 characters.
bool valid_file_name(std::string_view name);

/// True for a dataset path: '/' and a valid file name, once or more, at most 1023 characters.
bool valid_dataset_name(std::string_view name);

}  // namespace llmtrain
