// SPDX-License-Identifier: Apache-2.0
/// Read-only files of a dataset: a mapped one (the index) and one read by position (the tokens).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "llmtrain/base/files.hpp"

namespace llmtrain {

/// An open file of fixed size. Reads are by position, so threads may share it.
class InputFile {
 public:
  /// Throws Error(missing_input) if `path` cannot be opened or is no regular file.
  explicit InputFile(std::string path);
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  const std::string& path() const { return path_; }
  std::int64_t size() const { return size_; }  ///< bytes, when it was opened
  int descriptor() const { return file_.get(); }

  /// Fills `out` from byte `offset`. Throws Error(bad_input) if the file has become too short, Error(io_error) otherwise.
  void read_at(std::int64_t offset, std::span<std::byte> out) const;

  /// Throws Error(bad_input) if the file's size is not what it was when opened.
  void require_unchanged() const;

 private:
  std::string path_;
  FileDescriptor file_;
  std::int64_t size_ = 0;
};

/// A whole file in memory, shared between the processes of a node.
class MappedFile {
 public:
  explicit MappedFile(std::string path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const InputFile& file() const { return file_; }
  std::span<const std::byte> bytes() const { return {data_, static_cast<std::size_t>(file_.size())}; }

 private:
  InputFile file_;
  const std::byte* data_ = nullptr;
};

}  // namespace llmtrain
