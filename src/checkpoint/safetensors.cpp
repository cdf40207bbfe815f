// SPDX-License-Identifier: Apache-2.0
/// Reading and writing of safetensors files.
#include "llmtrain/checkpoint/safetensors.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <utility>

#include "llmtrain/base/error.hpp"
#include "llmtrain/base/json.hpp"
#include "llmtrain/checkpoint/geometry.hpp"

namespace llmtrain {

namespace {

constexpr std::size_t alignment = 8;  // of the data's first byte

std::string json_of(std::span<const SafeTensor> tensors, const std::map<std::string, std::string>& metadata) {
  JsonObject header;
  if (!metadata.empty()) {
    JsonObject texts;
    for (const auto& [name, text] : metadata) texts.add(name, text);
    header.add("__metadata__", texts);
  }
  for (const SafeTensor& tensor : tensors) {
    JsonArray shape;
    for (const std::int64_t extent : tensor.shape) shape.add(extent);
    header.add(tensor.name, JsonObject()
                                .add("dtype", tensor.type)
                                .add("shape", shape)
                                .add("data_offsets", JsonArray().add(tensor.begin).add(tensor.end)));
  }
  return header.text();
}

std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

}  // namespace

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path)
    : path_(path.string()), file_(::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
  if (!file_) fail(ExitCode::missing_input, "cannot open {}: {}", path_, errno_text(errno));
  struct stat status {};
  require(::fstat(file_.get(), &status) == 0 && S_ISREG(status.st_mode), ExitCode::missing_input,
          "cannot use {}: it is not a regular file", path_);
  const auto read_text = [&](std::int64_t offset, std::int64_t bytes) {
    std::string text(static_cast<std::size_t>(bytes), '\0');
    const ReadResult got = read_full_at(file_.get(), offset, std::as_writable_bytes(std::span(text)));
    require(got.error == 0, ExitCode::io_error, "reading {} failed: {}", path_, errno_text(got.error));
    text.resize(static_cast<std::size_t>(got.bytes));
    return text;
  };
  const std::string first = read_text(0, sizeof(std::uint64_t));
  const std::int64_t bytes = safetensors_header_bytes(first, status.st_size, path_);
  header_ = parse_safetensors_header(read_text(sizeof(std::uint64_t), bytes), status.st_size, path_);
}

void SafetensorsFile::read(const SafeTensor& tensor, std::int64_t offset, std::span<std::byte> out) const {
  const auto wanted = static_cast<std::int64_t>(out.size());
  LLMTRAIN_CHECK(offset >= 0 && offset + wanted <= tensor.end - tensor.begin);
  const ReadResult got = read_full_at(file_.get(), tensor.begin + offset, out);
  require(got.error == 0, ExitCode::io_error, "reading '{}' in {} failed: {}", tensor.name, path_,
          errno_text(got.error));
  require(got.bytes == wanted, ExitCode::bad_input, "{} ends inside of '{}': it was cut while it was read", path_,
          tensor.name);
}

SafetensorsWriter::SafetensorsWriter(const std::filesystem::path& path, std::vector<SafeTensor> tensors,
                                     const std::map<std::string, std::string>& metadata)
    : path_(path.string()) {
  std::int64_t bytes = 0;
  for (SafeTensor& tensor : tensors) {
    const std::optional<DType> dtype = safetensors_dtype(tensor.type);
    LLMTRAIN_CHECK(dtype.has_value());
    tensor.begin = bytes;
    tensor.end = bytes += checked_volume(tensor.shape) * size_of(*dtype);
  }
  std::string header = json_of(tensors, metadata);
  header.resize((header.size() + alignment - 1) / alignment * alignment, ' ');
  const std::uint64_t length = header.size();
  require(length <= static_cast<std::uint64_t>(max_safetensors_header), ExitCode::cannot_create,
          "cannot create {}: its header of {} bytes is longer than the format allows: write more shards", path_,
          length);
  file_ = FileDescriptor(::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666));
  if (!file_) fail(ExitCode::cannot_create, "cannot create {}: {}", path_, errno_text(errno));
  size_ = static_cast<std::int64_t>(sizeof length + length) + bytes;
  append(std::as_bytes(std::span(&length, 1)));
  append(bytes_of(header));
}

void SafetensorsWriter::append(std::span<const std::byte> bytes) {
  LLMTRAIN_CHECK(written_ + static_cast<std::int64_t>(bytes.size()) <= size_);
  const int error = write_all_at(file_.get(), written_, bytes);
  require(error == 0, ExitCode::io_error, "writing {} at byte {} failed: {}; check the space and the quota of its disk",
          path_, written_, errno_text(error));
  written_ += static_cast<std::int64_t>(bytes.size());
}

void SafetensorsWriter::close() {
  LLMTRAIN_CHECK(written_ == size_);
  const int error = file_.close();
  require(error == 0, ExitCode::io_error, "closing {} failed: {}", path_, errno_text(error));
  sync_path(path_);
}

}  // namespace llmtrain
