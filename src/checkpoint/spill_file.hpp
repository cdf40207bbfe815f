// SPDX-License-Identifier: Apache-2.0
/// Host memory for the pieces of a save that need not fit in memory: a file without a name, written and then mapped.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

#include "llmtrain/base/files.hpp"

namespace llmtrain {

/// A mapping of memory, given back at the end.
class Mapping {
 public:
  Mapping() = default;
  /// So many bytes of a file; of no file (-1), zeros that take no memory. Throws Error(io_error).
  Mapping(int file, std::int64_t bytes);
  Mapping(Mapping&& other) noexcept;
  Mapping& operator=(Mapping&& other) noexcept;
  ~Mapping();

  std::byte* data() const { return data_; }

 private:
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

/// The file: nobody else sees it, and its space is free again when this object goes or the program ends.
class SpillFile {
 public:
  /// In `folder`, which is made. Throws Error(cannot_create).
  explicit SpillFile(const std::filesystem::path& folder);

  /// Adds the bytes and returns where they are. Throws Error(io_error).
  std::int64_t append(std::span<const std::byte> bytes);

  /// All of it, to read.
  Mapping map() const { return {file_.get(), size_}; }

 private:
  std::filesystem::path folder_;
  FileDescriptor file_;
  std::int64_t size_ = 0;
};

}  // namespace llmtrain
