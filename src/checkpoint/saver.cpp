// SPDX-License-Identifier: Apache-2.0
/// The phases of a save: begin (rank 0 makes a folder aside), write (each rank alone, no communication), commit (rank 0
/// describes, renames, points `latest` to it, prunes). Failures are agreed on at the end of each phase.
#include "llmtrain/checkpoint/saver.hpp"

#include <algorithm>
#include <optional>
#include <system_error>

#include <fmt/format.h>

#include "files.hpp"
#include "llmtrain/base/error.hpp"
#include "llmtrain/checkpoint/folders.hpp"
#include "llmtrain/checkpoint/loader.hpp"
#include "llmtrain/checkpoint/manifest.hpp"
#include "shard.hpp"
#include "team.hpp"

namespace llmtrain {

namespace {

namespace fs = std::filesystem;

/// What one rank tells rank 0 about its shard.
struct ShardReport {
  std::vector<StoredPiece> pieces;
  FileFacts facts;
};

void check_inputs(const CheckpointState& state, std::span<const Piece> pieces, const SaveOptions& options) {
  LLMTRAIN_CHECK(state.step >= 0 && state.samples >= 0 && options.keep >= 1);
  for (const auto& [name, value] : state.counters) LLMTRAIN_CHECK(valid_file_name(name));
  for (const auto& [name, value] : state.identity) LLMTRAIN_CHECK(valid_file_name(name));
  for (const Piece& piece : pieces) {
    const bool reserved = piece.dataset == deck_dataset || piece.dataset.starts_with("/state/");
    require(valid_dataset_name(piece.dataset) && !reserved, ExitCode::internal, "'{}' cannot be a tensor's name",
            piece.dataset);
    const std::string problem = piece_error(piece);
    require(problem.empty() && (piece.data != nullptr || piece.size() == 0), ExitCode::internal, "bad piece of {}: {}",
            piece.dataset, problem.empty() ? "no data" : problem);
  }
}

void make_folder(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  require(!error && fs::is_directory(folder, error), ExitCode::cannot_create, "cannot create folder {}: {}",
          folder.string(), error ? error.message() : "it exists and is not a folder");
}

/// Makes the folder to write in, if the disk has room. Rank 0.
void begin_save(const fs::path& checkpoints_dir, const fs::path& aside, std::int64_t bytes) {
  make_folder(checkpoints_dir);
  const std::int64_t free = free_bytes(checkpoints_dir);
  require(bytes <= free, ExitCode::io_error,
          "a checkpoint needs {} bytes and {} has {} free: make room or set checkpoint.dir", bytes,
          checkpoints_dir.string(), free);
  std::error_code error;
  const bool made = fs::create_directory(aside, error);
  require(made, ExitCode::cannot_create, "cannot create folder {}: {}", aside.string(),
          error ? error.message() : "it exists");
}

/// Compares what lies on the disk with what was in memory.
void verify_shard(const fs::path& folder, const std::string& name, std::span<const StoredPiece> pieces) {
  try {
    const ShardFile shard(folder, name);
    std::vector<StoredPiece> found = shard.scan();
    sort_pieces(found);
    require(encode(found) == encode(pieces), ExitCode::io_error, "headers of {} read back differ", name);
    for (const StoredPiece& piece : found) {
      require(shard.digest(piece) == piece.digest, ExitCode::io_error, "{} in {} reads back differently", piece.dataset,
              name);
    }
  } catch (const Error& error) {
    fail(ExitCode::io_error, "the checkpoint just written is not what was in memory: {}; check the disk", error.what());
  }
}

/// Writes this rank's shard, unless it has nothing to write. No communication.
ShardReport write_phase(int rank, const fs::path& aside, const CheckpointState& state, std::span<const Piece> pieces,
                        bool verify) {
  ShardReport report;
  const bool empty = std::ranges::all_of(pieces, [](const Piece& piece) { return piece.size() == 0; });
  if (rank > 0 && empty) return report;
  const std::string name = shard_name(rank);
  report.pieces = write_shard(aside, name, pieces, rank == 0 ? &state.deck : nullptr);
  report.facts = read_facts(aside / name);
  if (verify) verify_shard(aside, name, report.pieces);
  return report;
}

std::string encode_report(const ShardReport& report) {
  if (report.facts.digest.empty()) return "";
  return fmt::format("{} {}\n{}", report.facts.size, report.facts.digest, encode(report.pieces));
}

/// Everything that rank 0 writes into the folder aside; returns the bytes of the whole checkpoint.
std::int64_t describe(const fs::path& aside, const CheckpointState& state, std::span<const std::string> reports) {
  Manifest manifest;
  manifest.state = state;
  manifest.writers = static_cast<int>(reports.size());
  std::vector<StoredPiece> pieces;
  for (std::size_t rank = 0; rank < reports.size(); ++rank) {
    const std::string& report = reports[rank];
    if (report.empty()) continue;
    const auto space = report.find(' ');
    const auto line = report.find('\n');
    manifest.files.push_back({shard_name(static_cast<int>(rank)), std::stoll(report.substr(0, space)),
                              report.substr(space + 1, line - space - 1)});
    std::ranges::move(decode(std::string_view(report).substr(line + 1)), std::back_inserter(pieces));
  }
  sort_pieces(pieces);
  manifest.tensors = tensors_of(pieces, ExitCode::internal);
  if (manifest.writers <= max_indexed_writers) {
    write_index_file(aside / index_file_name, state, pieces);
    const FileFacts facts = read_facts(aside / index_file_name);
    manifest.files.insert(manifest.files.begin(), {index_file_name, facts.size, facts.digest});
  }
  const std::string text = write_manifest(manifest);
  durable_write(aside / manifest_name, text);
  sync_path(aside);
  return manifest.bytes() + static_cast<std::int64_t>(text.size());
}

/// A name for a damaged folder that makes way: "step-NNNNNNNN.damaged", then ".damaged-2", ...
fs::path damaged_name(const fs::path& folder) {
  fs::path name = folder;
  name += ".damaged";
  for (int i = 2; fs::exists(name); ++i) {
    name = folder;
    name += fmt::format(".damaged-{}", i);
  }
  return name;
}

/// Gives the folder its name. An older one of that name is removed if it was whole, else kept under another name.
void publish(const fs::path& aside, const fs::path& folder, bool replace, bool old_is_damaged,
             std::vector<std::string>& notes) {
  if (!replace) return durable_rename(aside, folder);
  exchange_paths(aside, folder);
  if (old_is_damaged) {
    const fs::path kept = damaged_name(folder);
    durable_rename(aside, kept);
    notes.push_back(fmt::format("the damaged {} is now {}", folder.filename().string(), kept.filename().string()));
  } else {
    std::error_code error;
    fs::remove_all(aside, error);
    if (error) notes.push_back(fmt::format("warning: {} cannot be removed: {}", aside.string(), error.message()));
  }
}

/// Removes the oldest steps beyond `keep`. Newer steps than the new one belong to somebody else's plans: they stay.
void prune(const fs::path& checkpoints_dir, std::int64_t step, const SaveOptions& options,
           std::vector<std::string>& notes) {
  std::int64_t kept = 0;
  std::vector<std::string> spared = read_damaged(checkpoints_dir);
  std::ranges::copy(options.protect, std::back_inserter(spared));
  for (const StepFolder& folder : list_step_folders(checkpoints_dir).steps) {
    const std::string name = folder.path.filename().string();
    const bool committed = fs::is_regular_file(folder.path / manifest_name);
    const bool spare = folder.step != step && std::ranges::find(spared, name) != spared.end();
    if (folder.step > step || !committed || spare) continue;
    if (++kept <= options.keep) continue;
    // Renamed first: a kill while files go leaves an unfinished folder, not a damaged checkpoint.
    fs::path doomed = folder.path;
    doomed += ".tmp." + random_suffix();
    durable_rename(folder.path, doomed);
    fs::remove_all(doomed);
    notes.push_back(fmt::format("removed {}", name));
  }
}

/// What follows the commit: its failure is told, but the checkpoint is there.
void after_commit(const fs::path& folder, std::int64_t step, const SaveOptions& options,
                  std::vector<std::string>& notes) {
  try {
    atomic_write(folder.parent_path() / "latest", folder.filename().string() + "\n");
    prune(folder.parent_path(), step, options, notes);
  } catch (const std::exception& error) {
    notes.push_back(
        fmt::format("warning: {} is saved, but tidying up failed: {}", folder.filename().string(), error.what()));
  }
}

/// Whether an older folder of the same name lies there, and whether it verifies. Collective.
struct Occupant {
  bool exists = false;
  bool damaged = false;
};

Occupant look_at_place(const MpiComm& comm, const fs::path& folder) {
  Occupant occupant;
  const std::string seen = team::rank(comm) == 0 && fs::exists(fs::symlink_status(folder)) ? "yes" : "";
  occupant.exists = !team::broadcast(comm, seen).empty();
  if (!occupant.exists) return occupant;
  try {
    occupant.damaged = !examine_checkpoint(comm, folder).problems.empty();
  } catch (const Error&) {
    occupant.damaged = true;  // of a newer format, say: not ours to remove
  }
  return occupant;
}

}  // namespace

SaveResult save_checkpoint(const MpiComm& comm, const fs::path& checkpoints_dir, const CheckpointState& state,
                           std::span<const Piece> pieces, const SaveOptions& options) {
  const int rank = team::rank(comm);
  SaveResult result;
  result.folder = checkpoints_dir / step_folder_name(state.step);
  team::agree(comm, [&] { check_inputs(state, pieces, options); });
  std::int64_t bytes = 0;
  for (const Piece& piece : pieces) bytes += piece.bytes();
  bytes = team::sum(comm, bytes);
  fs::path aside = result.folder;
  aside += ".tmp." + team::broadcast(comm, random_suffix());
  const Occupant occupant = look_at_place(comm, result.folder);
  try {
    team::agree_on_root(comm, [&] { begin_save(checkpoints_dir, aside, bytes); });
    ShardReport report;
    team::agree(comm, [&] { report = write_phase(rank, aside, state, pieces, options.verify); });
    const std::vector<std::string> reports = team::all_gather(comm, encode_report(report));
    std::int64_t total = 0;
    team::agree_on_root(comm, [&] {
      total = describe(aside, state, reports);
      publish(aside, result.folder, occupant.exists, occupant.damaged, result.notes);
    });
    result.bytes = team::sum(comm, rank == 0 ? total : 0);
  } catch (...) {
    std::error_code ignored;
    if (rank == 0) fs::remove_all(aside, ignored);
    throw;
  }
  if (rank == 0) after_commit(result.folder, state.step, options, result.notes);
  return result;
}

void check_checkpoint_dir(const MpiComm& comm, const fs::path& checkpoints_dir) {
  team::agree_on_root(comm, [&] { make_folder(checkpoints_dir); });
  team::agree(comm, [&] {
    const fs::path probe = checkpoints_dir / fmt::format(".probe-{:05}", team::rank(comm));
    fs::path renamed = probe;
    renamed += ".renamed";
    try {
      durable_write(probe, "probe\n");
      durable_rename(probe, renamed);
      fs::remove(renamed);
    } catch (const std::exception& error) {
      std::error_code ignored;
      fs::remove(probe, ignored);
      fs::remove(renamed, ignored);
      fail(ExitCode::cannot_create, "checkpoints cannot be written to {}: {}; set checkpoint.dir or run.dir",
           checkpoints_dir.string(), error.what());
    }
  });
}

}  // namespace llmtrain
