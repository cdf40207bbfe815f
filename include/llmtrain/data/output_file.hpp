// SPDX-License-Identifier: Apache-2.0
/// Files that appear whole or not at all: written aside, flushed to disk, then renamed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "llmtrain/base/files.hpp"

namespace llmtrain {

/// Whether a file is to be there after a power cut.
enum class Lasts { yes, no };

/// A file being written under a temporary name beside `path`; destroyed unpublished, it leaves nothing.
class OutputFile {
 public:
  /// Throws Error(cannot_create) if the folder is missing or not writable.
  explicit OutputFile(std::string path);
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  const std::string& path() const { return path_; }
  const std::string& temporary() const { return temporary_; }  ///< where it is until it is published
  std::int64_t size() const { return flushed_ + static_cast<std::int64_t>(buffer_.size()); }  ///< bytes written so far

  // Each throws Error(io_error), on a full disk for instance.
  void append(std::span<const std::byte> bytes);
  void flush();
  void write_at(std::int64_t offset, std::span<const std::byte> bytes);  ///< over bytes that were appended
  void read_at(std::int64_t offset, std::span<std::byte> out);           ///< of bytes that were appended
  void finish(Lasts lasts = Lasts::yes);                                 ///< flush, fsync if it is to last, and close

 private:
  friend void publish(std::span<OutputFile* const> files);
  void put(std::int64_t offset, std::span<const std::byte> bytes);

  std::string path_;
  std::string temporary_;  ///< empty once renamed
  FileDescriptor file_;
  std::int64_t flushed_ = 0;
  std::vector<std::byte> buffer_;
};

/// Finishes all files, then renames them in order; older files of these names are removed first, the last one first, so
/// that a file which others depend on (the index) never stands beside a set it does not belong to. If a rename fails, the
/// files renamed before it are removed again. Throws Error(io_error or cannot_create).
void publish(std::span<OutputFile* const> files);

/// The bytes of a trivially copyable object, as they lie in memory (little-endian).
template <class T>
std::span<const std::byte> bytes_of(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}

}  // namespace llmtrain
