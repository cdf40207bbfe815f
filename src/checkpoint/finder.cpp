// SPDX-License-Identifier: Apache-2.0
/// Which checkpoint to go on from. Rank 0 looks at folders and tells the others; all ranks prove the files.
#include <algorithm>
#include <map>
#include <system_error>

#include <fmt/format.h>

#include "files.hpp"
#include "llmtrain/base/error.hpp"
#include "llmtrain/base/text.hpp"
#include "llmtrain/checkpoint/folders.hpp"
#include "llmtrain/checkpoint/loader.hpp"
#include "shard.hpp"
#include "team.hpp"

namespace llmtrain {

namespace {

namespace fs = std::filesystem;

constexpr std::int64_t max_manifest = std::int64_t{1} << 30;  // bytes; about 10 million tensors

/// Runs `produce` on rank 0 and gives its lines to all. Collective.
template <class Produce>
std::vector<std::string> from_root(const MpiComm& comm, Produce produce) {
  std::string text;
  team::agree_on_root(comm, [&] {
    for (const std::string& line : produce()) text += line + "\n";
  });
  return lines_of(team::broadcast(comm, text));
}

/// The text of the manifest, or "" and a problem, the same on all ranks. Collective.
std::string manifest_text(const MpiComm& comm, const fs::path& folder, std::vector<std::string>& problems) {
  std::string text;
  std::string problem;
  if (team::rank(comm) == 0) {
    try {
      text = read_small_file(folder / manifest_name, max_manifest);
    } catch (const Error& error) {
      problem = error.what();
    }
  }
  problem = team::broadcast(comm, problem);
  if (!problem.empty()) problems.push_back(problem);
  return team::broadcast(comm, text);
}

/// Adds what is wrong with the deck.
void check_deck(const fs::path& folder, const StoredDeck& deck, std::vector<std::string>& problems) {
  try {
    read_deck_at(folder, deck);
  } catch (const Error& error) {
    problems.emplace_back(error.what());
  }
}

/// Problems of the files, dealt out over the ranks; the list is the same on all. Collective.
std::vector<std::string> check_files(const MpiComm& comm, const Checkpoint& checkpoint, Files files, Damage damage) {
  std::string mine;
  const auto& [folder, manifest, proven] = checkpoint;
  std::map<std::string_view, std::vector<const StoredPiece*>> pieces;
  if (proven) pieces = pieces_by_shard(manifest);
  const auto ranks = static_cast<std::size_t>(team::size(comm));
  for (auto i = static_cast<std::size_t>(team::rank(comm)); i < manifest.files.size(); i += ranks) {
    const ManifestFile& file = manifest.files[i];
    if (files != Files::all && file.name == index_file_name) continue;
    std::vector<std::string> found{size_problem(folder, file.name, file.size)};
    if (found.front().empty()) {
      found.pop_back();
      if (proven) found = prove_and_read(folder, file, std::move(pieces[file.name]));
      if (manifest.has_places() && file.name == shard_name(0)) check_deck(folder, *manifest.deck, found);
    }
    if (!found.empty() && damage == Damage::by_tensor && !manifest.has_places() && is_shard_name(file.name)) {
      std::ranges::move(damaged_tensors(folder, file.name), std::back_inserter(found));
    }
    for (const std::string& line : found) mine += line + "\n";
  }
  return team::all_lines(comm, mine);
}

/// Files that the manifest does not list. Rank 0.
std::vector<std::string> strangers(const fs::path& folder, const Manifest& manifest) {
  std::vector<std::string> notes;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error); !error && entry != fs::directory_iterator();
       entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    const bool listed = std::ranges::find(manifest.files, name, &ManifestFile::name) != manifest.files.end();
    if (!listed && name != manifest_name && name != index_file_name) {
      notes.push_back(fmt::format("{}: {} does not belong to the checkpoint and is ignored", folder.filename().string(),
                                  valid_file_name(name) ? name : "a file"));
    }
  }
  std::ranges::sort(notes);
  return notes;
}

/// "a; b", or with many "a; b; c (and n more)".
std::string summary(std::span<const std::string> problems) {
  constexpr std::size_t shown = 3;
  const std::string text = fmt::format("{}", fmt::join(problems.first(std::min(shown, problems.size())), "; "));
  return problems.size() <= shown ? text : fmt::format("{} (and {} more)", text, problems.size() - shown);
}

/// What `latest` should say and does not, as a note.
void compare_latest(const MpiComm& comm, const fs::path& checkpoints_dir, Resume& resume) {
  const std::string chosen = resume.checkpoint->folder.filename().string();
  const std::vector<std::string> notes = from_root(comm, [&]() -> std::vector<std::string> {
    const std::string latest = read_latest(checkpoints_dir);
    if (latest == chosen) return {};
    return {fmt::format("warning: {} names {}; going on from {}, the newest that verifies",
                        (checkpoints_dir / "latest").string(), latest.empty() ? "no step" : latest, chosen)};
  });
  std::ranges::copy(notes, std::back_inserter(resume.notes));
}

/// Removes what saves left that did not end. Rank 0; a failure is a note.
std::vector<std::string> remove_unfinished(const fs::path& checkpoints_dir) {
  std::vector<std::string> notes;
  for (const fs::path& folder : list_step_folders(checkpoints_dir).unfinished) {
    std::error_code error;
    fs::remove_all(folder, error);
    notes.push_back(fmt::format("{} was not finished: {}", folder.string(),
                                error ? "ignored; it cannot be removed: " + error.message() : "ignored and removed"));
  }
  return notes;
}

/// Keeps the damaged ones known to later runs, whose retention must spare them. Collective.
void remember_damaged(const MpiComm& comm, const fs::path& checkpoints_dir, Resume& resume) {
  const std::vector<std::string> notes = from_root(comm, [&]() -> std::vector<std::string> {
    try {
      std::vector<std::string> good;
      if (resume.checkpoint) good.push_back(resume.checkpoint->folder.filename().string());
      note_damaged(checkpoints_dir, resume.damaged, good);
      return {};
    } catch (const std::exception& error) {
      return {fmt::format("warning: the list of damaged checkpoints cannot be kept: {}", error.what())};
    }
  });
  std::ranges::copy(notes, std::back_inserter(resume.notes));
}

/// The step folders of a checkpoints folder, newest first. Collective.
std::vector<std::string> step_folders(const MpiComm& comm, const fs::path& checkpoints_dir) {
  return from_root(comm, [&] {
    std::vector<std::string> names;
    for (const StepFolder& folder : list_step_folders(checkpoints_dir).steps) {
      names.push_back(folder.path.filename().string());
    }
    return names;
  });
}

Resume find_newest(const MpiComm& comm, const fs::path& checkpoints_dir, Files files) {
  Resume resume;
  resume.notes = from_root(comm, [&] { return remove_unfinished(checkpoints_dir); });
  std::vector<std::string> reasons;
  for (const std::string& name : step_folders(comm, checkpoints_dir)) {
    Examination examination = examine_checkpoint(comm, checkpoints_dir / name, files, Damage::by_tensor);
    if (examination.problems.empty()) {
      std::ranges::move(examination.notes, std::back_inserter(resume.notes));
      resume.checkpoint = std::move(examination.checkpoint);
      compare_latest(comm, checkpoints_dir, resume);
      remember_damaged(comm, checkpoints_dir, resume);
      return resume;
    }
    resume.damaged.push_back(name);
    reasons.push_back(fmt::format("{}: {}", name, summary(examination.problems)));
    resume.notes.push_back(fmt::format("warning: checkpoint {} is damaged, kept and skipped: {}",
                                       (checkpoints_dir / name).string(), summary(examination.problems)));
  }
  require(reasons.empty(), ExitCode::checkpoint_damaged,
          "no checkpoint in {} verifies ({}); restore one, or start anew with another run.dir",
          checkpoints_dir.string(), fmt::join(reasons, "; "));
  return resume;
}

/// The step folders that a path names, newest first. Collective.
std::vector<std::string> named_folders(const MpiComm& comm, const fs::path& path) {
  return from_root(comm, [&] {
    std::vector<std::string> names;
    for (const fs::path& folder : named_step_folders(path)) names.push_back(folder.string());
    return names;
  });
}

}  // namespace

void refuse_damaged(const fs::path& folder, std::span<const std::string> problems) {
  fail(ExitCode::checkpoint_damaged, "checkpoint {} is damaged: {}; restore it or name another one", folder.string(),
       summary(problems));
}

Manifest read_manifest(const fs::path& step_folder) {
  std::string text;
  try {
    text = read_small_file(step_folder / manifest_name, max_manifest);
  } catch (const Error& error) {
    fail(ExitCode::checkpoint_damaged, "{}", error.what());
  }
  return parse_manifest(text, manifest_name);
}

Examination examine_checkpoint(const MpiComm& comm, const fs::path& step_folder, Files files, Damage damage) {
  Examination examination;
  examination.checkpoint.folder = step_folder;
  const std::string name = step_folder.filename().string();
  if (is_unfinished_name(name)) {
    examination.problems.push_back("it was never finished");
    return examination;
  }
  const std::string text = manifest_text(comm, step_folder, examination.problems);
  if (!examination.problems.empty()) return examination;
  Manifest& manifest = examination.checkpoint.manifest;
  try {
    manifest = parse_manifest(text, manifest_name);
  } catch (const Error& error) {
    if (error.code() != ExitCode::checkpoint_damaged) throw;
    examination.problems.push_back(error.what());
    return examination;
  }
  const auto step = parse_step_folder(name);
  if (step && *step != manifest.state.step) {
    examination.problems.push_back(fmt::format("it holds step {}, not {}", manifest.state.step, *step));
  }
  examination.checkpoint.proven = files != Files::at_load || !manifest.has_places();
  std::ranges::move(check_files(comm, examination.checkpoint, files, damage), std::back_inserter(examination.problems));
  examination.notes = from_root(comm, [&] { return strangers(step_folder, manifest); });
  return examination;
}

Resume find_checkpoint(const MpiComm& comm, const std::string& resume, const fs::path& checkpoints_dir, Files files) {
  if (resume == "never") return {};
  if (resume == "auto") return find_newest(comm, checkpoints_dir, files);
  Resume found;
  for (const std::string& folder : named_folders(comm, resume)) {
    const Files looked_at = found.checkpoint ? Files::loaded : files;
    Examination examination = examine_checkpoint(comm, folder, looked_at, Damage::by_tensor);
    if (!examination.problems.empty()) refuse_damaged(folder, examination.problems);
    std::ranges::move(examination.notes, std::back_inserter(found.notes));
    if (!found.checkpoint) found.checkpoint = std::move(examination.checkpoint);
  }
  return found;
}

Checkpoint open_checkpoint(const MpiComm& comm, const fs::path& path, Files files) {
  // As an absolute path it cannot be taken for one of the words of checkpoint.resume.
  return *find_checkpoint(comm, fs::absolute(path).string(), {}, files).checkpoint;
}

}  // namespace llmtrain
