// SPDX-License-Identifier: Apache-2.0
/// Saves a checkpoint: written aside, read back, renamed when complete, older ones pruned after that.
#pragma once

#include <cstdint>
#include <filesystem>
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
};

struct SaveResult {
  std::filesystem::path folder;    ///< the committed step folder
  std::int64_t bytes = 0;          ///< of all its files
  std::vector<std::string> notes;  ///< lines for the log, on rank 0: what was pruned or moved aside, and could not be
};

/// Above this many writers checkpoint.h5 is not written with the rest; `llmtrain checkpoint index` makes it.
inline constexpr int max_indexed_writers = 2048;

/// Writes `state` and the pieces of all ranks to checkpoints_dir/step-NNNNNNNN. Each rank with pieces writes one shard
/// named by its rank in `comm`; rank 0 writes one always, with the deck. A null `comm` is one rank.
/// Throws the same Error on all ranks, with nothing left behind and older checkpoints untouched: cannot_create,
/// io_error (no space, failed write, read back differs), internal (pieces that do not cover their tensors once). Collective.
SaveResult save_checkpoint(const MpiComm& comm, const std::filesystem::path& checkpoints_dir,
                           const CheckpointState& state, std::span<const Piece> pieces, const SaveOptions& options);

/// Makes the folder; every rank writes, renames and removes a probe file in it. Throws cannot_create. Collective.
void check_checkpoint_dir(const MpiComm& comm, const std::filesystem::path& checkpoints_dir);

}  // namespace llmtrain
