// SPDX-License-Identifier: Apache-2.0
/// Files with every return checked: their digests, durable writes, renames, bounded reads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "llmtrain/base/digest.hpp"

namespace llmtrain {

struct FileFacts {
  std::int64_t size = 0;
  std::string digest;
};

/// Size and digest of a file, read once. Throws io_error.
FileFacts read_facts(const std::filesystem::path& path);

/// Compares a file with what it should be, size first; what is wrong, or "". A symbolic link is not followed.
std::string file_problem(const std::filesystem::path& folder, const std::string& name, const FileFacts& expected);

/// The text of a file of at most `limit` bytes that is no symbolic link. Throws missing_input or io_error.
std::string read_small_file(const std::filesystem::path& path, std::int64_t limit);

/// Creates the file, writes it and syncs it. Throws cannot_create or io_error.
void write_file(const std::filesystem::path& path, std::string_view text);

/// Replaces the file at once: written beside it, synced, renamed, folder synced.
void replace_file(const std::filesystem::path& path, std::string_view text);

/// Waits until a file or folder is on its disk, and forgets its pages so that reading it back reads the disk.
void sync_path(const std::filesystem::path& path);

/// rename(2), then syncs the folder.
void rename_path(const std::filesystem::path& from, const std::filesystem::path& to);

/// Puts `fresh` in the place of `old` and `old` in that of `fresh`, at once where the file system can.
void exchange_paths(const std::filesystem::path& fresh, const std::filesystem::path& old);

/// Bytes that an unprivileged writer can still store there; a very large number where the file system does not say.
std::int64_t free_bytes(const std::filesystem::path& folder);

/// Eight hexadecimal digits by chance.
std::string random_suffix();

}  // namespace llmtrain
