// SPDX-License-Identifier: Apache-2.0
/// Buffered writes under a temporary name, fsync and rename, with every return checked.
#include "llmtrain/data/output_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <utility>

#include "llmtrain/base/error.hpp"

namespace llmtrain {
namespace {

constexpr std::size_t buffer_bytes = std::size_t{1} << 20;

std::string folder_of(const std::string& path) {
  const std::string folder = std::filesystem::path(path).parent_path().string();
  return folder.empty() ? "." : folder;
}

void sync_folder(const std::string& folder) {
  const int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  require(descriptor >= 0, ExitCode::io_error, "cannot open folder {}: {}", folder, std::strerror(errno));
  const int status = ::fsync(descriptor);
  const int reason = errno;
  ::close(descriptor);
  require(status == 0, ExitCode::io_error, "fsync of folder {} failed: {}", folder, std::strerror(reason));
}

}  // namespace

OutputFile::OutputFile(std::string path) : path_(std::move(path)) {
  temporary_ = path_ + ".tmp.XXXXXX";
  descriptor_ = ::mkostemp(temporary_.data(), O_CLOEXEC);
  require(descriptor_ >= 0, ExitCode::cannot_create,
          "cannot create {}: {}; does folder {} exist and may you write there?", path_, std::strerror(errno),
          folder_of(path_));
  const mode_t mask = ::umask(0);  // mkostemp makes private files; data sets follow the user's umask
  ::umask(mask);
  if (::fchmod(descriptor_, 0666 & ~mask) != 0) {
    const int reason = errno;
    ::close(descriptor_);
    ::unlink(temporary_.c_str());
    fail(ExitCode::cannot_create, "cannot set the mode of {}: {}", path_, std::strerror(reason));
  }
  buffer_.reserve(buffer_bytes);
}

OutputFile::~OutputFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

void OutputFile::write_all(std::int64_t offset, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t put = ::pwrite(descriptor_, bytes.data(), bytes.size(), offset);
    if (put < 0 && errno == EINTR) continue;
    require(put > 0, ExitCode::io_error, "writing {} at byte {} failed: {}; nothing was left behind", path_, offset,
            put < 0 ? std::strerror(errno) : "no progress");
    offset += put;
    bytes = bytes.subspan(static_cast<std::size_t>(put));
  }
}

void OutputFile::flush() {
  write_all(flushed_, buffer_);
  flushed_ += static_cast<std::int64_t>(buffer_.size());
  buffer_.clear();
}

void OutputFile::append(std::span<const std::byte> bytes) {
  if (buffer_.size() + bytes.size() > buffer_bytes) flush();
  if (bytes.size() > buffer_bytes) {
    write_all(flushed_, bytes);
    flushed_ += static_cast<std::int64_t>(bytes.size());
  } else {
    buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
  }
}

void OutputFile::write_at(std::int64_t offset, std::span<const std::byte> bytes) {
  flush();
  LLMTRAIN_CHECK(offset >= 0 && offset + static_cast<std::int64_t>(bytes.size()) <= flushed_);
  write_all(offset, bytes);
}

void OutputFile::read_at(std::int64_t offset, std::span<std::byte> out) {
  flush();
  LLMTRAIN_CHECK(offset >= 0 && offset + static_cast<std::int64_t>(out.size()) <= flushed_);
  while (!out.empty()) {
    const ssize_t got = ::pread(descriptor_, out.data(), out.size(), offset);
    if (got < 0 && errno == EINTR) continue;
    require(got > 0, ExitCode::io_error, "reading back {} at byte {} failed: {}", path_, offset,
            got < 0 ? std::strerror(errno) : "it was cut by somebody else");
    offset += got;
    out = out.subspan(static_cast<std::size_t>(got));
  }
}

void OutputFile::finish() {
  if (descriptor_ < 0) return;
  flush();
  require(::fsync(descriptor_) == 0, ExitCode::io_error, "fsync of {} failed: {}", path_, std::strerror(errno));
  const int status = ::close(std::exchange(descriptor_, -1));
  require(status == 0, ExitCode::io_error, "closing {} failed: {}", path_, std::strerror(errno));
}

void publish(std::span<OutputFile* const> files) {
  for (OutputFile* file : files) file->finish();
  for (std::size_t i = files.size(); i-- > 0;) {
    require(::unlink(files[i]->path_.c_str()) == 0 || errno == ENOENT, ExitCode::cannot_create, "cannot replace {}: {}",
            files[i]->path_, std::strerror(errno));
  }
  for (std::size_t i = 0; i < files.size(); ++i) {
    if (::rename(files[i]->temporary_.c_str(), files[i]->path_.c_str()) != 0) {
      const int reason = errno;
      const std::string path = files[i]->path_;
      while (i-- > 0) ::unlink(files[i]->path_.c_str());
      fail(ExitCode::cannot_create, "cannot rename the finished file to {}: {}; nothing was left behind", path,
           std::strerror(reason));
    }
    files[i]->temporary_.clear();
  }
  for (std::size_t i = 0; i < files.size(); ++i) {
    const std::string folder = folder_of(files[i]->path_);
    if (i == 0 || folder != folder_of(files[i - 1]->path_)) sync_folder(folder);
  }
}

}  // namespace llmtrain
