// SPDX-License-Identifier: Apache-2.0
/// The folders of a run's checkpoints: step-NNNNNNNN when complete, step-NNNNNNNN.tmp.RANDOM while being written.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace llmtrain {

struct StepFolder {
  std::int64_t step = 0;
  std::filesystem::path path;
};

struct StepFolders {
  std::vector<StepFolder> steps;                  ///< newest first; complete or damaged, never looked into
  std::vector<std::filesystem::path> unfinished;  ///< left by a save that did not end, sorted
};

/// "step-" and the step with at least eight digits.
std::string step_folder_name(std::int64_t step);

/// The step of such a name; nothing for any other name.
std::optional<std::int64_t> parse_step_folder(std::string_view name);

/// True for the name of a folder being written.
bool is_unfinished_name(std::string_view name);

/// What lies in a checkpoints folder; other names are passed over. Empty where the folder does not exist;
/// Error(missing_input) where it cannot be read.
StepFolders list_step_folders(const std::filesystem::path& checkpoints_dir);

/// The step folders that a path names, newest first: the path itself if it is one (by its name or its manifest), else
/// those in it. Absolute, without links. Error(missing_input) if there is none.
std::vector<std::filesystem::path> named_step_folders(const std::filesystem::path& path);

/// Folders that a search found damaged, from the file `damaged` beside them: retention leaves them alone in later runs
/// too. Empty where there is no such file.
std::vector<std::string> read_damaged(const std::filesystem::path& checkpoints_dir);

/// Adds names to that file, drops those of folders that are gone or among `repaired`. Throws cannot_create, io_error.
void note_damaged(const std::filesystem::path& checkpoints_dir, std::span<const std::string> names,
                  std::span<const std::string> repaired);

/// The folder that `latest` names; "" where the file is missing, unreadable or not a step's name.
std::string read_latest(const std::filesystem::path& checkpoints_dir);

}  // namespace llmtrain
