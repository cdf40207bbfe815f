// SPDX-License-Identifier: Apache-2.0
/// What checkpoints need of files beyond base/files: digests, the exchange of two folders, free space.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
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

/// Bytes of a file that are read where they belong.
struct InPlace {
  FileRange range;
  std::byte* to = nullptr;
};

/// What becomes of a file's bytes besides their digest.
struct Delivery {
  std::vector<InPlace> in_place;  ///< in order; they do not overlap
  /// Sees all bytes, those in place too, in parts; called by any thread, out of order.
  std::function<void(std::int64_t offset, std::span<const std::byte> bytes)> look;
};

/// Who reads: the threads of OpenMP where somebody waits, the caller alone beside training.
enum class Threads { one, all };

/// Reads a file once; `ranges` are in order and do not overlap. A symbolic link is not followed. Throws io_error.
FileReading read_whole(const std::filesystem::path& path, std::span<const FileRange> ranges, Threads threads,
                       const Delivery& delivery = {});

/// What is wrong with a file that must be there, no symbolic link, and have so many bytes, or "".
std::string size_problem(const std::filesystem::path& folder, const std::string& name, std::int64_t bytes);

/// What is wrong with the contents of a file, or "".
std::string contents_problem(const std::string& name, const FileFacts& found, const FileFacts& expected);

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
