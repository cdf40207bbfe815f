// SPDX-License-Identifier: Apache-2.0
/// What a file being written holds, so that its digest is known without reading it back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "files.hpp"

namespace llmtrain {

class FileImage {
 public:
  /// Bytes at `address`, copied; or, if `borrow`, left where they are: then they must not change until facts().
  void write(std::uint64_t address, const void* data, std::size_t bytes, bool borrow);
  /// The file's length; what nobody wrote is zeros.
  void resize(std::uint64_t size) { size_ = size; }

  FileFacts facts() const;

 private:
  struct Extent {
    const std::byte* data = nullptr;  ///< into `copy`, or into somebody's memory
    std::size_t bytes = 0;
    std::vector<std::byte> copy;
  };
  void cut(std::uint64_t begin, std::uint64_t end);

  std::map<std::uint64_t, Extent> extents_;  ///< by address; they do not overlap
  std::uint64_t size_ = 0;
};

}  // namespace llmtrain
