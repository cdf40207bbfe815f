// SPDX-License-Identifier: Apache-2.0
/// Files that must stay as they were when opened, and their mappings.
#include "llmtrain/data/input_file.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <utility>

#include "llmtrain/base/error.hpp"

namespace llmtrain {

InputFile::InputFile(std::string path) : path_(std::move(path)) {
  file_ = FileDescriptor(::open(path_.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file_) fail(ExitCode::missing_input, "cannot open {}: {}", path_, errno_text(errno));
  struct stat status {};
  const bool known = ::fstat(file_.get(), &status) == 0;
  require(known && S_ISREG(status.st_mode), ExitCode::missing_input, "cannot use {}: it is not a regular file", path_);
  size_ = status.st_size;
}

void InputFile::read_at(std::int64_t offset, std::span<std::byte> out) const {
  const ReadResult got = read_full_at(file_.get(), offset, out);
  require(got.error == 0, ExitCode::io_error, "reading {} at byte {} failed: {}", path_, offset, errno_text(got.error));
  const auto wanted = static_cast<std::int64_t>(out.size());
  require(got.bytes == wanted, ExitCode::bad_input,
          "{} ends before byte {}, but had {} bytes when it was opened; it was cut while in use: write it again", path_,
          offset + wanted, size_);
}

void InputFile::require_unchanged() const {
  struct stat status {};
  if (::fstat(file_.get(), &status) != 0) fail(ExitCode::io_error, "fstat of {} failed: {}", path_, errno_text(errno));
  require(status.st_size == size_, ExitCode::bad_input,
          "{} has {} bytes, but had {} when it was opened; it was changed while in use: write it again", path_,
          static_cast<std::int64_t>(status.st_size), size_);
}

MappedFile::MappedFile(std::string path) : file_(std::move(path)) {
  if (file_.size() == 0) return;  // an empty file cannot be mapped
  void* data = ::mmap(nullptr, static_cast<std::size_t>(file_.size()), PROT_READ, MAP_SHARED, file_.descriptor(), 0);
  require(data != MAP_FAILED, ExitCode::io_error, "mapping {} ({} bytes) failed: {}", file_.path(), file_.size(),
          errno_text(errno));
  data_ = static_cast<const std::byte*>(data);
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), static_cast<std::size_t>(file_.size()));
}

}  // namespace llmtrain
