// SPDX-License-Identifier: Apache-2.0
/// What checkpoints need of files beyond base/files: digests, the exchange of two folders, free space.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "llmtrain/base/digest.hpp"
#include "llmtrain/base/files.hpp"

namespace llmtrain {

struct FileFacts {
  std::int64_t size = 0;
  std::string digest;
};

/// Size and digest of a file, read once. Throws io_error.
FileFacts read_facts(const std::filesystem::path& path);

/// Compares a file with what it should be, size first; what is wrong, or "". A symbolic link is not followed.
std::string file_problem(const std::filesystem::path& folder, const std::string& name, const FileFacts& expected);

/// Puts `fresh` in the place of `old` and `old` in that of `fresh`, at once where the file system can.
void exchange_paths(const std::filesystem::path& fresh, const std::filesystem::path& old);

/// Bytes that an unprivileged writer can still store there; a very large number where the file system does not say.
std::int64_t free_bytes(const std::filesystem::path& folder);

/// Eight hexadecimal digits by chance.
std::string random_suffix();

}  // namespace llmtrain
