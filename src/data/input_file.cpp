// SPDX-License-Identifier: Apache-2.0
/// POSIX reads and mappings with every return checked.
#include "llmtrain/data/input_file.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "llmtrain/base/error.hpp"

namespace llmtrain {

InputFile::InputFile(std::string path) : path_(std::move(path)) {
  descriptor_ = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC);
  require(descriptor_ >= 0, ExitCode::missing_input, "cannot open {}: {}", path_, std::strerror(errno));
  struct stat status {};
  const bool known = ::fstat(descriptor_, &status) == 0;
  if (!known || !S_ISREG(status.st_mode)) {
    ::close(descriptor_);
    fail(ExitCode::missing_input, "cannot use {}: it is not a regular file", path_);
  }
  size_ = status.st_size;
}

InputFile::~InputFile() { ::close(descriptor_); }

void InputFile::read_at(std::int64_t offset, std::span<std::byte> out) const {
  std::size_t done = 0;
  while (done < out.size()) {
    const ssize_t got = ::pread(descriptor_, out.data() + done, out.size() - done, offset + static_cast<off_t>(done));
    if (got < 0 && errno == EINTR) continue;
    require(got >= 0, ExitCode::io_error, "reading {} at byte {} failed: {}", path_, offset, std::strerror(errno));
    require(got > 0, ExitCode::bad_input,
            "{} ends before byte {}, but had {} bytes when it was opened; it was cut while in use: write it again",
            path_, offset + static_cast<std::int64_t>(out.size()), size_);
    done += static_cast<std::size_t>(got);
  }
}

void InputFile::require_unchanged() const {
  struct stat status {};
  require(::fstat(descriptor_, &status) == 0, ExitCode::io_error, "fstat of {} failed: {}", path_,
          std::strerror(errno));
  require(status.st_size == size_, ExitCode::bad_input,
          "{} has {} bytes, but had {} when it was opened; it was changed while in use: write it again", path_,
          static_cast<std::int64_t>(status.st_size), size_);
}

MappedFile::MappedFile(std::string path) : file_(std::move(path)) {
  if (file_.size() == 0) return;  // an empty file cannot be mapped
  void* data = ::mmap(nullptr, static_cast<std::size_t>(file_.size()), PROT_READ, MAP_SHARED, file_.descriptor(), 0);
  require(data != MAP_FAILED, ExitCode::io_error, "mapping {} ({} bytes) failed: {}", file_.path(), file_.size(),
          std::strerror(errno));
  data_ = static_cast<const std::byte*>(data);
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), static_cast<std::size_t>(file_.size()));
}

}  // namespace llmtrain
