// SPDX-License-Identifier: Apache-2.0
/// The phases of a save: begin (rank 0 makes a folder aside), write (each rank alone, no communication), commit (rank 0
/// describes, renames, points `latest` to it, prunes; no communication). Failures are agreed on at the end of each.
#include "llmtrain/checkpoint/saver.hpp"

#include <algorithm>
#include <chrono>
#include <future>
#include <system_error>

#include <fmt/format.h>

#include "files.hpp"
#include "llmtrain/base/beacon.hpp"
#include "llmtrain/base/error.hpp"
#include "llmtrain/base/inject.hpp"
#include "llmtrain/checkpoint/folders.hpp"
#include "llmtrain/checkpoint/loader.hpp"
#include "llmtrain/checkpoint/manifest.hpp"
#include "shard.hpp"
#include "team.hpp"

namespace llmtrain {

namespace {

namespace fs = std::filesystem;

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

void require_room(const fs::path& checkpoints_dir, std::int64_t bytes) {
  const std::int64_t free = free_bytes(checkpoints_dir);
  require(bytes <= free, ExitCode::io_error,
          "a checkpoint needs {} bytes and {} has {} free: make room or set checkpoint.dir", bytes,
          checkpoints_dir.string(), free);
}

/// Makes the folder to write in, if the disk has room. Rank 0.
void begin_save(const fs::path& checkpoints_dir, const fs::path& aside, std::int64_t bytes) {
  fault_point("save.begin");
  make_folder(checkpoints_dir);
  require_room(checkpoints_dir, bytes);
  std::error_code error;
  const bool made = fs::create_directory(aside, error);
  require(made, ExitCode::cannot_create, "cannot create folder {}: {}", aside.string(),
          error ? error.message() : "it exists");
}

/// What one rank tells rank 0 about its shard; nothing if it has none.
std::string encode_report(const WrittenShard& shard) {
  if (shard.name.empty()) return "";
  return fmt::format("{} {}\n{}", shard.facts.size, shard.facts.digest, encode(shard.pieces));
}

/// Everything that rank 0 writes into the folder aside; returns the bytes of the whole checkpoint.
std::int64_t describe(const fs::path& aside, const CheckpointState& state, const StoredDeck& deck,
                      std::span<const std::string> reports) {
  Manifest manifest;
  manifest.state = state;
  manifest.writers = static_cast<int>(reports.size());
  manifest.deck = deck;
  std::vector<StoredPiece>& pieces = manifest.pieces;
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
    fault_point("save.index");
    const FileFacts facts = write_index_file(aside / index_file_name, state, pieces);
    manifest.files.insert(manifest.files.begin(), {index_file_name, facts.size, facts.digest});
  }
  const std::string text = write_manifest(manifest);
  fault_point("save.manifest");
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
  fault_point("save.rename");
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

/// Renamed first: a kill while files go leaves an unfinished folder, not a damaged checkpoint.
void remove_step(const fs::path& folder, std::vector<std::string>& notes) {
  fs::path doomed = folder;
  doomed += ".tmp." + random_suffix();
  fault_point("save.prune");
  durable_rename(folder, doomed);
  fault_point("save.remove");
  fs::remove_all(doomed);
  notes.push_back(fmt::format("removed {}", folder.filename().string()));
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
    if (++kept > options.keep) remove_step(folder.path, notes);
  }
}

/// What follows the commit: its failure is told, but the checkpoint is there.
void after_commit(const fs::path& folder, std::int64_t step, const SaveOptions& options,
                  std::vector<std::string>& notes) {
  try {
    fault_point("save.latest");
    atomic_write(folder.parent_path() / "latest", folder.filename().string() + "\n");
    prune(folder.parent_path(), step, options, notes);
  } catch (const std::exception& error) {
    notes.push_back(
        fmt::format("warning: {} is saved, but tidying up failed: {}", folder.filename().string(), error.what()));
  }
  static_cast<void>(fault_at("save.end"));
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

struct Save::Impl {
  MpiComm comm;
  fs::path checkpoints_dir;
  CheckpointState state;
  std::vector<Piece> pieces;
  SaveOptions options;
  fs::path aside;
  Occupant occupant;
  WrittenShard shard;                // after the write phase
  std::vector<std::string> reports;  // of all ranks, in the commit phase
  enum class Phase { write, commit, committed } phase = Phase::write;
  SaveResult result;
  std::future<void> work;  // of this phase on this rank; the last member: its end is waited for first

  void begin() {
    team::agree(comm, [&] { check_inputs(state, pieces, options); });
    std::int64_t bytes = 0;
    for (const Piece& piece : pieces) bytes += piece.bytes();
    bytes = team::sum(comm, bytes);
    result.folder = checkpoints_dir / step_folder_name(state.step);
    aside = result.folder;
    aside += ".tmp." + team::broadcast(comm, random_suffix());
    occupant = look_at_place(comm, result.folder);
    team::agree_on_root(comm, [&] { begin_save(checkpoints_dir, aside, bytes); });
    start(&Impl::write);
  }

  /// The work of a phase, in a thread or at the next advance().
  void start(void (Impl::*phase_work)()) {
    work = std::async(options.in_background ? std::launch::async : std::launch::deferred, [this, phase_work] {
      set_fault_step(state.step);
      (this->*phase_work)();
    });
  }

  /// Writes this rank's shard, unless it has nothing to write. No communication.
  void write() {
    const int rank = team::rank(comm);
    const bool empty = std::ranges::all_of(pieces, [](const Piece& piece) { return piece.size() == 0; });
    if (rank > 0 && empty) return;
    shard = write_shard(aside, shard_name(rank), pieces, rank == 0 ? &state.deck : nullptr);
    if (options.verify) verify_shard(aside, shard, options.in_background ? Threads::one : Threads::all);
  }

  /// What makes it a checkpoint. No communication; nothing to do but on rank 0.
  void commit() {
    if (team::rank(comm) != 0) return;
    result.bytes = describe(aside, state, shard.deck, reports);
    publish(aside, result.folder, occupant.exists, occupant.damaged, result.notes);
    after_commit(result.folder, state.step, options, result.notes);
  }

  ~Impl() {
    if (work.valid() && options.in_background) work.wait();
    std::error_code ignored;
    if (phase != Phase::committed && !aside.empty() && team::rank(comm) == 0) fs::remove_all(aside, ignored);
  }
};

Save::Save(const MpiComm& comm, const fs::path& checkpoints_dir, CheckpointState state, std::vector<Piece> pieces,
           const SaveOptions& options)
    : impl_(std::make_unique<Impl>()) {
  impl_->comm = comm;
  impl_->checkpoints_dir = checkpoints_dir;
  impl_->state = std::move(state);
  impl_->pieces = std::move(pieces);
  impl_->options = options;
  impl_->begin();
}

Save::~Save() = default;

bool Save::is_working() const {
  return impl_->work.valid() && impl_->work.wait_for(std::chrono::seconds(0)) == std::future_status::timeout;
}

bool Save::is_written() const { return impl_->phase != Impl::Phase::write; }

bool Save::advance() {
  Impl& save = *impl_;
  team::agree(save.comm, [&] {
    const Beacon::Wait wait(save.options.in_background ? "its save in the background" : "");
    save.work.get();
  });
  if (save.phase == Impl::Phase::commit) {
    save.phase = Impl::Phase::committed;
    return true;
  }
  save.reports = team::all_gather(save.comm, encode_report(save.shard));
  save.phase = Impl::Phase::commit;
  save.start(&Impl::commit);
  return false;
}

const SaveResult& Save::result() const { return impl_->result; }

SaveResult save_checkpoint(const MpiComm& comm, const fs::path& checkpoints_dir, const CheckpointState& state,
                           std::span<const Piece> pieces, const SaveOptions& options) {
  Save save(comm, checkpoints_dir, state, {pieces.begin(), pieces.end()}, options);
  while (!save.advance()) {
  }
  return save.result();
}

std::vector<std::string> prune_checkpoints(const fs::path& checkpoints_dir, std::int64_t keep) {
  std::int64_t kept = 0;
  std::vector<std::string> notes;
  const std::vector<std::string> damaged = read_damaged(checkpoints_dir);
  for (const StepFolder& folder : list_step_folders(checkpoints_dir).steps) {
    const std::string name = folder.path.filename().string();
    if (std::ranges::find(damaged, name) != damaged.end() || !fs::is_regular_file(folder.path / manifest_name))
      continue;
    if (kept < keep) {
      kept += examine_checkpoint({}, folder.path).problems.empty() ? 1 : 0;
    } else {
      remove_step(folder.path, notes);
    }
  }
  require(kept > 0, ExitCode::missing_input, "no checkpoint in {} verifies: nothing is removed",
          checkpoints_dir.string());
  return notes;
}

void check_checkpoint_dir(const MpiComm& comm, const fs::path& checkpoints_dir, std::int64_t bytes) {
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
  team::agree_on_root(comm, [&] { require_room(checkpoints_dir, bytes); });
}

}  // namespace llmtrain
