// SPDX-License-Identifier: Apache-2.0
/// Writes one HDF5 file: whole arrays, texts, attributes and virtual datasets. No clock or chance is in the file, so
/// equal contents in equal order give equal bytes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "llmtrain/base/dtype.hpp"

namespace llmtrain {

/// Size of a file, and its XXH3-128 digest as `xxhsum -H2` prints it.
struct FileFacts {
  std::int64_t size = 0;
  std::string digest;
};

/// Where one box of a virtual dataset comes from: elements [begin, begin + product of shape) of a 1-D dataset.
struct VirtualSource {
  std::string file;         ///< name relative to the folder of the file being written
  std::string dataset;      ///< path of the 1-D dataset in it
  std::int64_t length = 0;  ///< elements of that dataset
  std::int64_t begin = 0;
  std::vector<std::int64_t> start;  ///< the box in the virtual dataset
  std::vector<std::int64_t> shape;
};

/// An HDF5 file being written by one process. Groups on the way to a dataset are made. Every call throws
/// Error(cannot_create) when the file cannot be made and Error(io_error) when a write fails.
class H5Writer {
 public:
  explicit H5Writer(const std::filesystem::path& path);  ///< replaces an existing file
  ~H5Writer();                                           ///< closes without checks: call close()
  H5Writer(const H5Writer&) = delete;
  H5Writer& operator=(const H5Writer&) = delete;

  /// A whole array, row-major; an empty shape makes a scalar. Contiguous, no filters. Returns the offset of its first
  /// byte in the file.
  std::int64_t write(const std::string& dataset, DType dtype, std::span<const std::int64_t> shape, const void* data);

  template <class T>
  std::int64_t write(const std::string& dataset, std::span<const std::int64_t> shape, std::span<const T> data) {
    return write(dataset, dtype_of<T>, shape, data.data());
  }

  /// A scalar string dataset (UTF-8, fixed length; an empty text is one zero). Returns as write().
  std::int64_t write_text(const std::string& dataset, const std::string& text);

  /// An array put together from boxes of other files; what no file gives reads as NaN (integers: the lowest value).
  void write_virtual(const std::string& dataset, DType dtype, std::span<const std::int64_t> shape,
                     std::span<const VirtualSource> sources);

  /// Attributes of a dataset or group that exists.
  void attribute(const std::string& object, const std::string& name, std::int64_t value);
  void attribute(const std::string& object, const std::string& name, std::span<const std::int64_t> values);
  void attribute(const std::string& object, const std::string& name, const std::string& text);

  /// Closes the file and syncs it to its disk, checking each; only then is the file complete.
  void close();

  /// After close(): what the file must be, found without reading it. Memory given to write() must be as it was then.
  FileFacts facts() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace llmtrain
