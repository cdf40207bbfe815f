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
  bool proven = false;  ///< every file has the digest that the manifest gives; else load_checkpoint() finds out
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
  loaded,   ///< not checkpoint.h5, which is for other programs and can be made again
  at_load,  ///< the same, but by size only if the manifest says where the bytes lie: the load proves them as it reads
};

/// How damage of a shard is told whose pieces only HDF5 can find.
enum class Damage {
  by_file,
  by_tensor,  ///< lines of damaged_tensors() follow that of their file
};

/// Reads the manifest and checks size and digest of its files, and of the deck and the pieces where it says that they lie;
/// each file is read once, by one rank and its threads. A null `comm` is one rank. Throws checkpoint_incompatible for a
/// newer format. Collective.
Examination examine_checkpoint(const MpiComm& comm, const std::filesystem::path& step_folder, Files files = Files::all,
                               Damage damage = Damage::by_file);

/// One line for each tensor of a damaged shard that differs from its digest, and for what cannot be read, by its headers.
/// HDF5 may crash on such a file, so it is opened in a process of its own, a fork: before a run takes its memory. Local.
std::vector<std::string> damaged_tensors(const std::filesystem::path& step_folder, const std::string& shard);

/// `resume` as in the deck. "never": nothing. "auto": the newest step of `checkpoints_dir` that verifies; unfinished
/// ones are removed with a note, damaged ones named and skipped; checkpoint_damaged if none is left though there are
/// step folders. checkpoint.h5 is not looked at. A path: a step folder, or a checkpoints folder and then its newest; missing_input if there is none,
/// checkpoint_damaged if any step so named is damaged. `files` are those looked at of the step that is returned.
/// Collective.
Resume find_checkpoint(const MpiComm& comm, const std::string& resume, const std::filesystem::path& checkpoints_dir,
                       Files files = Files::loaded);

/// The one for programs that only read: as find_checkpoint with a path. Collective.
Checkpoint open_checkpoint(const MpiComm& comm, const std::filesystem::path& path, Files files = Files::loaded);

/// Reads tensors of a checkpoint, where the manifest says that they lie.
class CheckpointReader {
 public:
  /// A manifest without places is completed from the headers of all shards, dealt out over the ranks; throws
  /// checkpoint_damaged for anything but plain contiguous datasets that cover their tensors exactly once. Collective.
  CheckpointReader(const MpiComm& comm, Checkpoint checkpoint);

  const Checkpoint& checkpoint() const { return checkpoint_; }
  std::span<const StoredPiece> pieces() const { return checkpoint_.manifest.pieces; }

  /// The tensor's row of the manifest, or null.
  const ManifestTensor* find(const std::string& tensor) const;

  /// Fills the wanted pieces, whose boxes and ranges need not be those of the save, by all threads and from the parts of
  /// shards that hold them. Throws checkpoint_incompatible for an unknown tensor, another shape or another type. Local:
  /// another rank may read something else. The checkpoint must be proven.
  void read(std::span<const Piece> wanted) const;

  /// The same on every rank, each with its own pieces, failing on all if on one; and a checkpoint that is not proven is so
  /// now: each file is read once, by the rank that needs most of it if the load stays balanced, and what this rank needs
  /// goes to its place while file and pieces are digested. Throws checkpoint_damaged; then the memory holds anything.
  /// Collective.
  void load(const MpiComm& comm, std::span<const Piece> wanted);

  /// The whole state: the manifest's and the deck, from the first shard. Local.
  CheckpointState read_state() const;

  /// Compares every stored piece with its own digest, a shard in one pass; a line for each that differs. Local.
  std::vector<std::string> check_pieces() const;

  /// Compares what HDF5 says of the shards, which is what other programs read, with the manifest; a line for each shard
  /// that differs. Throws as the constructor. Local.
  std::vector<std::string> check_headers() const;

 private:
  Checkpoint checkpoint_;
};

/// The state with its deck; rank 0 reads it. Collective.
CheckpointState read_checkpoint_state(const MpiComm& comm, const Checkpoint& checkpoint);

/// CheckpointReader::load. Collective.
void load_checkpoint(const MpiComm& comm, const Checkpoint& checkpoint, std::span<const Piece> wanted);

/// Writes checkpoint.h5, the virtual datasets over the shards, again. Throws cannot_create, io_error. Local.
void write_checkpoint_index(const CheckpointReader& reader);

}  // namespace llmtrain
