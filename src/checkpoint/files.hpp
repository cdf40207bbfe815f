// SPDX-License-Identifier: Apache-2.0
/// What checkpoints need of files beyond base/files: digests, the exchange of two folders, free space.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "llmtrain/base/digest.hpp"
#include "llmtrain/base/files.hpp"
#include "llmtrain/checkpoint/h5_writer.hpp"

namespace llmtrain {

/// A part of a file.
struct FileRange {
  std::int64_t offset = 0;
  std::int64_t bytes = 0;
};

/// What one pass over a file gives.
struct FileReading {
  FileFacts facts;
  std::vector<std::string> digests;  ///< of the ranges
};

/// Who reads: the threads of OpenMP where somebody waits, the caller alone beside training.
enum class Threads { one, all };

/// Reads a file once; `ranges` are in order and do not overlap. Throws io_error.
FileReading read_whole(const std::filesystem::path& path, std::span<const FileRange> ranges, Threads threads);

/// Compares a file with what it should be, size first; what is wrong, or "". A symbolic link is not followed. By all
/// threads.
std::string file_problem(const std::filesystem::path& folder, const std::string& name, const FileFacts& expected);

/// Puts `fresh` in the place of `old` and `old` in that of `fresh`, at once where the file system can.
void exchange_paths(const std::filesystem::path& fresh, const std::filesystem::path& old);

/// Bytes that an unprivileged writer can still store there; a very large number where the file system does not say.
std::int64_t free_bytes(const std::filesystem::path& folder);

/// Eight hexadecimal digits by chance.
std::string random_suffix();

/// A name beside `path` to write under; what is left there after a failure is removed.
class Aside {
 public:
  explicit Aside(const std::filesystem::path& path) : path_(path.string() + ".tmp." + random_suffix()) {}
  ~Aside() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  Aside(const Aside&) = delete;
  Aside& operator=(const Aside&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace llmtrain
