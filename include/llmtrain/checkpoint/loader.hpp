// SPDX-License-Identifier: Apache-2.0
/// Finds the checkpoint to go on from, proves its files, and reads any part of it into any layout.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "llmtrain/base/mpi.hpp"
#include "llmtrain/checkpoint/manifest.hpp"
#include "llmtrain/checkpoint/piece.hpp"

namespace llmtrain {

/// A step folder and its manifest.
struct Checkpoint {
  std::filesystem::path folder;
  Manifest manifest;
};

/// What looking at one step folder found; it verifies if there are no problems.
struct Examination {
  Checkpoint checkpoint;
  std::vector<std::string> problems;  ///< one line each, naming the file
  std::vector<std::string> notes;     ///< files that do not belong to it
};

struct Resume {
  std::optional<Checkpoint> checkpoint;  ///< none: start from step 0
  std::vector<std::string> damaged;      ///< names of damaged step folders, as kept for retention
  std::vector<std::string> notes;        ///< warnings and notes for the log, the same on all ranks
};

/// The manifest of a step folder, without a look at its other files. Throws checkpoint_damaged or
/// checkpoint_incompatible. Local.
Manifest read_manifest(const std::filesystem::path& step_folder);

/// Which files of a step folder are looked at.
enum class Files {
  all,
  loaded,  ///< not checkpoint.h5, which is for other programs and can be made again
};

/// How damage of a shard is told.
enum class Damage {
  by_file,
  by_tensor,  ///< lines of damaged_tensors() follow that of their file
};

/// Reads the manifest and checks size and digest of its files; each file is read once, by one rank and its threads. A null
/// `comm` is one rank. Throws checkpoint_incompatible for a newer format. Collective.
Examination examine_checkpoint(const MpiComm& comm, const std::filesystem::path& step_folder, Files files = Files::all,
                               Damage damage = Damage::by_file);

/// One line for each tensor of a damaged shard that differs from its digest, and for what cannot be read. HDF5 may crash
/// on such a file, so it is opened in a process of its own, a fork: before a run takes its memory. Local.
std::vector<std::string> damaged_tensors(const std::filesystem::path& step_folder, const std::string& shard);

/// `resume` as in the deck. "never": nothing. "auto": the newest step of `checkpoints_dir` that verifies; unfinished
/// ones are removed with a note, damaged ones named and skipped; checkpoint_damaged if none is left though there are
/// step folders. checkpoint.h5 is not looked at. A path: a step folder, or a checkpoints folder and then its newest; missing_input if there is none,
/// checkpoint_damaged if any step so named is damaged. Collective.
Resume find_checkpoint(const MpiComm& comm, const std::string& resume, const std::filesystem::path& checkpoints_dir);

/// The one for programs that only read: as find_checkpoint with a path. Collective.
Checkpoint open_checkpoint(const MpiComm& comm, const std::filesystem::path& path);

/// A piece as it lies in a shard.
struct StoredPiece {
  Piece piece;              ///< without data
  std::string digest;       ///< XXH3-128 of its bytes, hexadecimal
  std::string shard;        ///< file name
  std::string dataset;      ///< path in the shard: piece.dataset, or that and "+n" for a rank's further pieces of it
  std::int64_t offset = 0;  ///< of its first byte in the shard
};

/// Reads tensors of a verified checkpoint.
class CheckpointReader {
 public:
  /// Reads the headers of all shards, dealt out over the ranks. Throws checkpoint_damaged for anything but plain
  /// contiguous datasets that cover their tensors exactly once. Collective.
  CheckpointReader(const MpiComm& comm, Checkpoint checkpoint);

  const Checkpoint& checkpoint() const { return checkpoint_; }
  std::span<const StoredPiece> pieces() const { return pieces_; }  ///< sorted by tensor

  /// The tensor's row of the manifest, or null.
  const ManifestTensor* find(const std::string& tensor) const;

  /// Fills the wanted pieces, whose boxes and ranges need not be those of the save, by all threads and from the parts of
  /// shards that hold them. Throws checkpoint_incompatible for an unknown tensor, another shape or another type. Local:
  /// another rank may read something else.
  void read(std::span<const Piece> wanted) const;

  /// The whole state: the manifest's and the deck, from the first shard. Local.
  CheckpointState read_state() const;

  /// Compares every stored piece with its own digest, a shard in one pass; a line for each that differs. Local.
  std::vector<std::string> check_pieces() const;

 private:
  Checkpoint checkpoint_;
  std::vector<StoredPiece> pieces_;
};

/// The state with its deck; rank 0 reads it. Collective.
CheckpointState read_checkpoint_state(const MpiComm& comm, const Checkpoint& checkpoint);

/// CheckpointReader::read on every rank, each with its own pieces, failing on all if on one. Collective.
void load_checkpoint(const MpiComm& comm, const Checkpoint& checkpoint, std::span<const Piece> wanted);

/// Writes checkpoint.h5, the virtual datasets over the shards, again. Throws cannot_create, io_error. Local.
void write_checkpoint_index(const CheckpointReader& reader);

}  // namespace llmtrain
