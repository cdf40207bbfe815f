// SPDX-License-Identifier: Apache-2.0
/// Names of step folders, and what lies beside them.
#include "llmtrain/checkpoint/folders.hpp"

#include <algorithm>
#include <charconv>
#include <set>
#include <sstream>
#include <system_error>

#include <fmt/format.h>

#include "files.hpp"
#include "llmtrain/base/error.hpp"
#include "llmtrain/checkpoint/manifest.hpp"

namespace llmtrain {

namespace {

constexpr std::string_view prefix = "step-";
constexpr std::string_view mark = ".tmp.";
constexpr std::size_t least_digits = 8;
constexpr std::size_t most_digits = 18;
constexpr std::int64_t max_latest = 256;       // bytes
constexpr std::int64_t max_damaged = 1 << 20;  // bytes
constexpr const char* damaged_list = "damaged";

}  // namespace

std::string step_folder_name(std::int64_t step) { return fmt::format("step-{:08}", step); }

std::optional<std::int64_t> parse_step_folder(std::string_view name) {
  if (!name.starts_with(prefix)) return std::nullopt;
  name.remove_prefix(prefix.size());
  if (name.size() < least_digits || name.size() > most_digits ||
      name.find_first_not_of("0123456789") != std::string_view::npos ||
      (name.size() > least_digits && name.front() == '0')) {
    return std::nullopt;
  }
  std::int64_t step = 0;
  std::from_chars(name.data(), name.data() + name.size(), step);
  return step;
}

bool is_unfinished_name(std::string_view name) {
  const auto dot = name.find(mark);
  return dot != std::string_view::npos && parse_step_folder(name.substr(0, dot)).has_value() &&
         valid_file_name(name.substr(dot + mark.size()));
}

StepFolders list_step_folders(const std::filesystem::path& checkpoints_dir) {
  StepFolders folders;
  std::error_code error;
  std::filesystem::directory_iterator entry(checkpoints_dir, error);
  // Where a file stands in the way there are no steps either; who wants to write says what is wrong with the path.
  if (error == std::errc::no_such_file_or_directory || error == std::errc::not_a_directory) return folders;
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    std::error_code unreadable;
    if (!entry->is_directory(unreadable)) continue;
    const std::string name = entry->path().filename().string();
    if (const auto step = parse_step_folder(name)) {
      folders.steps.push_back({*step, entry->path()});
    } else if (is_unfinished_name(name)) {
      folders.unfinished.push_back(entry->path());
    }
  }
  require(!error, ExitCode::missing_input, "cannot list {}: {}", checkpoints_dir.string(), error.message());
  std::ranges::sort(folders.steps, std::greater(), &StepFolder::step);
  std::ranges::sort(folders.unfinished);
  return folders;
}

std::vector<std::filesystem::path> named_step_folders(const std::filesystem::path& path) {
  std::error_code error;
  const std::filesystem::path folder = std::filesystem::canonical(path, error);
  require(!error && std::filesystem::is_directory(folder, error), ExitCode::missing_input, "no checkpoint at {}: {}",
          path.string(), error ? error.message() : "it is not a folder");
  const std::string name = folder.filename().string();
  if (parse_step_folder(name) || is_unfinished_name(name) || std::filesystem::exists(folder / manifest_name)) {
    return {folder};
  }
  std::vector<std::filesystem::path> paths;
  for (const StepFolder& step : list_step_folders(folder).steps) paths.push_back(step.path);
  require(!paths.empty(), ExitCode::missing_input, "no checkpoint at {}: it has neither {} nor step folders",
          path.string(), manifest_name);
  return paths;
}

std::vector<std::string> read_damaged(const std::filesystem::path& checkpoints_dir) {
  std::vector<std::string> names;
  try {
    std::istringstream text(read_small_file(checkpoints_dir / damaged_list, max_damaged));
    for (std::string name; std::getline(text, name);) {
      if (parse_step_folder(name)) names.push_back(name);
    }
  } catch (const Error&) {
    names.clear();
  }
  return names;
}

void note_damaged(const std::filesystem::path& checkpoints_dir, std::span<const std::string> names,
                  std::span<const std::string> repaired) {
  const std::vector<std::string> before = read_damaged(checkpoints_dir);
  std::set<std::string> after(before.begin(), before.end());
  after.insert(names.begin(), names.end());
  for (const std::string& name : repaired) after.erase(name);
  std::erase_if(after, [&](const std::string& name) { return !std::filesystem::exists(checkpoints_dir / name); });
  if (after == std::set<std::string>(before.begin(), before.end())) return;
  std::string text;
  for (const std::string& name : after) text += name + "\n";
  if (text.empty()) {
    std::filesystem::remove(checkpoints_dir / damaged_list);
  } else {
    atomic_write(checkpoints_dir / damaged_list, text);
  }
}

std::string read_latest(const std::filesystem::path& checkpoints_dir) {
  try {
    std::string name = read_small_file(checkpoints_dir / "latest", max_latest);
    if (!name.ends_with('\n')) return "";
    name.pop_back();
    return parse_step_folder(name) ? name : "";
  } catch (const Error&) {
    return "";
  }
}

}  // namespace llmtrain
