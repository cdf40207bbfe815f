// SPDX-License-Identifier: Apache-2.0
/// manifest.json: what a step folder holds and where in its files, in one JSON object with one member a line, closed by
/// its own digest.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "llmtrain/base/dtype.hpp"
#include "llmtrain/checkpoint/piece.hpp"

namespace llmtrain {

/// Major version of the format: a reader refuses newer ones. A newer minor version only adds members: 1.0 does not say
/// where the deck and the pieces lie.
inline constexpr int checkpoint_format_major = 1;
inline constexpr int checkpoint_format_minor = 1;

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

/// A piece as it lies in a shard: contiguous, as it was in memory.
struct StoredPiece {
  Piece piece;              ///< without data
  std::string digest;       ///< XXH3-128 of its bytes, hexadecimal
  std::string shard;        ///< file name
  std::string dataset;      ///< path in the shard: piece.dataset, or that and "+n" for the shard's further pieces of it
  std::int64_t offset = 0;  ///< of its first byte in the shard

  std::int64_t end() const { return offset + piece.bytes(); }
};

/// The deck's text as it lies in the first shard.
struct StoredDeck {
  std::int64_t offset = 0;
  std::int64_t bytes = 0;  ///< at least 1: an empty text is a zero
  std::string digest;
};

struct Manifest {
  CheckpointState state;  ///< without the deck, which is a dataset
  int writers = 1;        ///< ranks of the run that saved
  std::vector<ManifestFile> files;
  std::vector<ManifestTensor> tensors;  ///< sorted by name
  std::optional<StoredDeck> deck;       ///< none in format 1.0
  std::vector<StoredPiece> pieces;      ///< with the deck: each tensor exactly once, by tensor, slice and range

  std::int64_t bytes() const;  ///< of all files
  /// Whether it says where everything lies, so that nobody needs to ask HDF5.
  bool has_places() const { return deck.has_value(); }
};

/// The text of manifest.json.
std::string write_manifest(const Manifest& manifest);

/// Reads it back. Throws checkpoint_damaged for any byte that differs, for names, sizes, types or shapes that are not
/// allowed, and for places outside of their file, that share bytes, or that do not make their tensor whole;
/// checkpoint_incompatible for a newer major version. `where` names the file in messages.
Manifest parse_manifest(std::string_view text, std::string_view where);

/// True for a plain file name: [A-Za-z0-9._-]+, no leading dot, at most 255 characters.
bool valid_file_name(std::string_view name);

/// True for a dataset path: '/' and a valid file name, once or more, at most 1023 characters.
bool valid_dataset_name(std::string_view name);

}  // namespace llmtrain
