// SPDX-License-Identifier: Apache-2.0
/// Who may write where, decided on rank 0 before any work.
#include "llmtrain/driver/run_folder.hpp"

#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "llmtrain/base/agree.hpp"
#include "llmtrain/base/files.hpp"
#include "llmtrain/checkpoint/saver.hpp"
#include "llmtrain/config/dump.hpp"
#include "llmtrain/config/read.hpp"
#include "llmtrain/driver/resume.hpp"

namespace llmtrain {

namespace {

namespace fs = std::filesystem;

/// True if the folder's deck is this run's, so that a fresh start repeats it.
bool is_same_run(const RunFolder& folder, const Deck& deck) {
  try {
    const Deck stored = parse_deck(read_file(folder.deck()), folder.deck());
    for (const KeyChange& change : key_changes(stored, deck)) {
      if (!change.allowed) return false;
    }
    return true;
  } catch (const Error&) {
    return false;
  }
}

/// Removes what an earlier run wrote; files of other names stay.
void empty(const RunFolder& folder, const Deck& deck) {
  for (const std::string& file : {folder.deck(), folder.metrics(), folder.log(), folder.products(), folder.hang()}) {
    fs::remove(file);
  }
  const fs::path checkpoints = deck.checkpoint.dir;
  if (!fs::exists(checkpoints)) return;
  for (const fs::directory_entry& entry : fs::directory_iterator(checkpoints)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("step-") || name == "latest" || name == "damaged") fs::remove_all(entry.path());
  }
}

/// What a start that hung may have left.
void remove_standings(const RunFolder& folder) {
  const std::string name = fs::path(folder.standings("")).filename().string();
  std::error_code ignored;  // those of this start may be on their way
  for (const fs::directory_entry& entry : fs::directory_iterator(folder.dir, ignored)) {
    if (entry.path().filename().string().starts_with(name)) fs::remove_all(entry.path(), ignored);
  }
}

void claim(const RunFolder& folder, const Launch& launch) {
  const Deck& deck = launch.deck;
  make_directories(folder.dir);
  const bool fresh = !launch.resumed.has_value();
  if (fresh && fs::exists(folder.deck())) {
    const bool restart = deck.checkpoint.resume != "never" && is_same_run(folder, deck);
    require(
        restart || deck.run.overwrite, ExitCode::cannot_create,
        "{} holds {}; choose another run.dir, or replace it with run.overwrite=true", folder.dir,
        is_same_run(folder, deck) ? "an earlier start of this run, and checkpoint.resume is 'never'" : "another run");
    if (deck.run.overwrite) empty(folder, deck);
  }
}

/// The folders that a run writes.
std::vector<std::string> folders_of(const Deck& deck) {
  std::vector<std::string> folders{deck.run.dir};
  const fs::path inside =
      fs::weakly_canonical(deck.checkpoint.dir).lexically_relative(fs::weakly_canonical(deck.run.dir));
  if (deck.checkpoint.every > 0 && (inside.empty() || *inside.begin() == "..")) folders.push_back(deck.checkpoint.dir);
  return folders;
}

}  // namespace

void lock_folders(Launch& launch, Folders which) {
  agree_on_root(launch.place.world, [&] {
    for (const std::string& folder : folders_of(launch.deck)) {
      const bool has = std::ranges::any_of(launch.locks, [&](const auto& lock) { return lock->folder() == folder; });
      if (has || (which == Folders::existing && !fs::is_directory(folder))) continue;
      make_directories(folder);
      const auto say = [](const std::string& line) { std::fputs((line + "\n").c_str(), stderr); };
      launch.locks.push_back(std::make_unique<RunLock>(folder, say));
      const std::string& note = launch.locks.back()->note();
      if (!note.empty()) launch.warnings.push_back(note);
    }
  });
}

RunFolder prepare_run_folder(Launch& launch, std::int64_t bytes) {
  const RunFolder folder{launch.deck.run.dir};
  lock_folders(launch, Folders::all);
  agree_on_root(launch.place.world, [&] { claim(folder, launch); });
  if (launch.deck.checkpoint.every > 0) {
    check_checkpoint_dir(launch.place.world, launch.deck.checkpoint.dir, bytes);
  }
  return folder;
}

void enter_run_folder(const RunFolder& folder, const Launch& launch, Logger& log) {
  agree_on_root(launch.place.world, [&] {
    remove_standings(folder);
    atomic_write(folder.deck(), to_yaml(launch.deck));
    log.attach_file(folder.log(), launch.resumed.has_value());
  });
}

}  // namespace llmtrain
