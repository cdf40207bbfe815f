// SPDX-License-Identifier: Apache-2.0
/// Files of the safetensors format: eight bytes of length, a JSON header, then the tensors back to back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "llmtrain/base/dtype.hpp"
#include "llmtrain/base/files.hpp"

namespace llmtrain {

/// The longest header that the format allows.
inline constexpr std::int64_t max_safetensors_header = 100'000'000;

/// A tensor of a file.
struct SafeTensor {
  std::string name;
  std::string type;                 ///< as the format writes it: "F32", "BF16", "BOOL", ...
  std::vector<std::int64_t> shape;  ///< row-major; empty for a scalar, extents may be 0
  std::int64_t begin = 0;           ///< bytes of the file
  std::int64_t end = 0;
};

struct SafetensorsHeader {
  std::vector<SafeTensor> tensors;  ///< sorted by name
  std::map<std::string, std::string> metadata;

  const SafeTensor* find(std::string_view name) const;  ///< null if there is none
};

/// The number type that a name of the format stands for, of those that weights are made of.
std::optional<DType> safetensors_dtype(std::string_view type);
std::string_view safetensors_type(DType dtype);

/// Length of the header from the first eight bytes of a file. Throws Error(bad_input) if the file cannot hold it.
std::int64_t safetensors_header_bytes(std::string_view first, std::int64_t file_bytes, std::string_view where);

/// Reads a header. Throws Error(bad_input), starting with `where`, for all that the format forbids: names twice, shapes
/// whose product overflows or is not what lies between the offsets, bytes that no tensor or two tensors have.
SafetensorsHeader parse_safetensors_header(std::string_view json, std::int64_t file_bytes, std::string_view where);

/// A file to read tensors from; only its header is in memory. Reads are by position, so threads may share it.
class SafetensorsFile {
 public:
  /// Throws Error(missing_input), Error(bad_input) and Error(io_error).
  explicit SafetensorsFile(const std::filesystem::path& path);

  const std::string& path() const { return path_; }
  const SafetensorsHeader& header() const { return header_; }

  /// Fills `out` from byte `offset` of the tensor on.
  void read(const SafeTensor& tensor, std::int64_t offset, std::span<std::byte> out) const;

 private:
  std::string path_;
  FileDescriptor file_;
  SafetensorsHeader header_;
};

/// A file being written: its tensors are known at the start, their bytes follow in that order.
class SafetensorsWriter {
 public:
  /// Places the tensors, whose offsets are ignored. Throws Error(cannot_create) also where the file exists.
  SafetensorsWriter(const std::filesystem::path& path, std::vector<SafeTensor> tensors,
                    const std::map<std::string, std::string>& metadata);

  /// Throws Error(io_error).
  void append(std::span<const std::byte> bytes);

  /// Checks that all is there and flushes it to the disk. Throws Error(io_error).
  void close();

  std::int64_t size() const { return size_; }  ///< bytes of the whole file

 private:
  std::string path_;
  FileDescriptor file_;
  std::int64_t size_ = 0;
  std::int64_t written_ = 0;
};

}  // namespace llmtrain
