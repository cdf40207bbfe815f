// SPDX-License-Identifier: Apache-2.0
/// Saves a checkpoint: written aside, read back, renamed when complete, older ones pruned after that.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "llmtrain/base/mpi.hpp"
#include "llmtrain/checkpoint/piece.hpp"

namespace llmtrain {

struct SaveOptions {
  std::int64_t keep = 2;             ///< committed checkpoints that stay, the new one included; at least 1
  bool verify = true;                ///< read each piece back and compare it with its digest from memory
  std::vector<std::string> protect;  ///< folder names never pruned nor counted, besides damaged ones
  bool in_background = false;        ///< files are written by a thread of their own
};

struct SaveResult {
  std::filesystem::path folder;    ///< the committed step folder
  std::int64_t bytes = 0;          ///< of all its files, on rank 0
  std::vector<std::string> notes;  ///< lines for the log, on rank 0: what was pruned or moved aside, and could not be
};

/// Above this many writers checkpoint.h5 is not written with the rest; `llmtrain checkpoint index` makes it.
inline constexpr int max_indexed_writers = 2048;

/// One save of `state` and the pieces of all ranks to checkpoints_dir/step-NNNNNNNN, in phases: every rank writes its
/// shard, then rank 0 describes and commits. Each rank with pieces writes one shard named by its rank in `comm`; rank 0
/// writes one always, with the deck. A null `comm` is one rank. MPI is called by the constructor and advance() only.
/// These throw the same Error on all ranks, with nothing left behind and older checkpoints untouched: cannot_create,
/// io_error (no space, failed write, read back differs), internal (pieces that do not cover their tensors once).
class Save {
 public:
  /// Checks everything, and begins. The pieces' memory must stay as it is until is_written(). Collective.
  Save(const MpiComm& comm, const std::filesystem::path& checkpoints_dir, CheckpointState state,
       std::vector<Piece> pieces, const SaveOptions& options);
  ~Save();  ///< waits for the thread; a save that did not end is removed
  Save(const Save&) = delete;
  Save& operator=(const Save&) = delete;

  /// True while the thread of this rank has something to do. Local.
  bool is_working() const;
  /// Goes on where the thread of every rank is done, else waits for it. True once the save is committed. Collective.
  bool advance();
  /// True once the pieces are no longer needed on this rank.
  bool is_written() const;
  /// After advance() gave true.
  const SaveResult& result() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// A save from begin to end. Collective.
SaveResult save_checkpoint(const MpiComm& comm, const std::filesystem::path& checkpoints_dir,
                           const CheckpointState& state, std::span<const Piece> pieces, const SaveOptions& options);

/// Removes the steps that are older than the newest `keep` of those that verify. Damaged ones stay. Returns a line for
/// each removed. Throws io_error; missing_input if no step verifies. Local.
std::vector<std::string> prune_checkpoints(const std::filesystem::path& checkpoints_dir, std::int64_t keep);

/// Makes the folder; every rank writes, renames and removes a probe file in it (cannot_create), and `bytes`, those of all
/// ranks together, must fit on its disk (io_error). Collective.
void check_checkpoint_dir(const MpiComm& comm, const std::filesystem::path& checkpoints_dir, std::int64_t bytes = 0);

}  // namespace llmtrain
