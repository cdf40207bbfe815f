// SPDX-License-Identifier: Apache-2.0
/// Written by calls and only read through the mapping: a full disk is an error then, and not a signal.
#include "spill_file.hpp"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <utility>

#include "llmtrain/base/error.hpp"

namespace llmtrain {

namespace {

constexpr std::int64_t alignment = 64;  // of each addition, for vector loads

}  // namespace

Mapping::Mapping(int file, std::int64_t bytes) : bytes_(static_cast<std::size_t>(bytes)) {
  if (bytes == 0) return;
  const int flags = file < 0 ? MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE : MAP_SHARED;
  void* data = ::mmap(nullptr, bytes_, PROT_READ, flags, file, 0);
  require(data != MAP_FAILED, ExitCode::io_error, "mapping {} bytes failed: {}", bytes, errno_text(errno));
  data_ = static_cast<std::byte*>(data);
}

Mapping::Mapping(Mapping&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

Mapping& Mapping::operator=(Mapping&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

Mapping::~Mapping() {
  if (data_ != nullptr) ::munmap(data_, bytes_);
}

SpillFile::SpillFile(const std::filesystem::path& folder) : folder_(folder) {
  make_directories(folder.string());
  std::string name = (folder / ".spill-XXXXXX").string();
  file_ = FileDescriptor(::mkostemp(name.data(), O_CLOEXEC));
  if (!file_) fail(ExitCode::cannot_create, "cannot create a file in {}: {}", folder.string(), errno_text(errno));
  ::unlink(name.c_str());
}

std::int64_t SpillFile::append(std::span<const std::byte> bytes) {
  const std::int64_t place = (size_ + alignment - 1) / alignment * alignment;
  const int error = write_all_at(file_.get(), place, bytes);
  require(error == 0, ExitCode::io_error, "writing a file in {} failed: {}; check the space and the quota of its disk",
          folder_.string(), errno_text(error));
  size_ = place + static_cast<std::int64_t>(bytes.size());
  return place;
}

}  // namespace llmtrain
