// SPDX-License-Identifier: Apache-2.0
/// The bytes of an input file, unpacked where it is gzip or Zstandard.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "llmtrain/base/files.hpp"

namespace llmtrain {

/// How a file is packed, by its first bytes; its name does not matter.
enum class Packing { none, gzip, zstd };
Packing packing_of(std::span<const char> first_bytes);

/// A file or a pipe, read from the front.
class ByteSource {
 public:
  /// Begins at byte `begin` of the file, which may not be packed unless that is 0. While a pipe has nothing to give, `stop`
  /// ends the wait. Throws Error(missing_input) if `path` cannot be opened.
  ByteSource(std::string path, std::int64_t begin, const std::atomic<bool>& stop);
  ~ByteSource();
  ByteSource(const ByteSource&) = delete;
  ByteSource& operator=(const ByteSource&) = delete;

  /// Unpacked bytes, as many as come at once; 0 at the end, or when stopped. Throws Error(bad_input) if packed data are
  /// damaged or cut, Error(io_error).
  std::size_t read(std::span<char> out);

  /// Bytes of the file that were read so far.
  std::int64_t consumed() const { return consumed_; }

 private:
  class Unpacker;
  class Gzip;
  class Zstd;

  std::size_t read_raw(std::span<char> out);
  bool refill();
  [[noreturn]] void damaged(const std::string& what) const;

  std::string path_;
  FileDescriptor file_;
  const std::atomic<bool>& stop_;
  bool waits_;  ///< a pipe, not a file
  std::int64_t begin_;
  std::int64_t consumed_ = 0;
  std::vector<char> buffer_;     ///< of bytes as they are in the file
  std::span<const char> ahead_;  ///< of the buffer: not used yet
  std::unique_ptr<Unpacker> unpacker_;
};

}  // namespace llmtrain
