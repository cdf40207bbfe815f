// SPDX-License-Identifier: Apache-2.0
/// Buffered writes under a temporary name, and the renames that publish several files together.
#include "llmtrain/data/output_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <utility>

#include "llmtrain/base/error.hpp"

namespace llmtrain {
namespace {

constexpr std::size_t buffer_bytes = std::size_t{1} << 20;

}  // namespace

OutputFile::OutputFile(std::string path) : path_(std::move(path)) {
  temporary_ = path_ + ".tmp.XXXXXX";
  file_ = FileDescriptor(::mkostemp(temporary_.data(), O_CLOEXEC));
  if (!file_)
    fail(ExitCode::cannot_create, "cannot create {}: {}; does folder {} exist and may you write there?", path_,
         errno_text(errno), folder_of(path_));
  const mode_t mask = ::umask(0);  // mkostemp makes private files; data sets follow the user's umask
  ::umask(mask);
  if (::fchmod(file_.get(), 0666 & ~mask) != 0) {
    const int reason = errno;
    ::unlink(temporary_.c_str());
    fail(ExitCode::cannot_create, "cannot set the mode of {}: {}", path_, errno_text(reason));
  }
  buffer_.reserve(buffer_bytes);
}

OutputFile::~OutputFile() {
  file_.close();  // before it is removed: NFS keeps a removed file under another name while it is open
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

void OutputFile::put(std::int64_t offset, std::span<const std::byte> bytes) {
  const int error = write_all_at(file_.get(), offset, bytes);
  require(error == 0, ExitCode::io_error, "writing {} at byte {} failed: {}; nothing was left behind", path_, offset,
          errno_text(error));
}

void OutputFile::flush() {
  put(flushed_, buffer_);
  flushed_ += static_cast<std::int64_t>(buffer_.size());
  buffer_.clear();
}

void OutputFile::append(std::span<const std::byte> bytes) {
  if (buffer_.size() + bytes.size() > buffer_bytes) flush();
  if (bytes.size() > buffer_bytes) {
    put(flushed_, bytes);
    flushed_ += static_cast<std::int64_t>(bytes.size());
  } else {
    buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
  }
}

void OutputFile::write_at(std::int64_t offset, std::span<const std::byte> bytes) {
  flush();
  LLMTRAIN_CHECK(offset >= 0 && offset + static_cast<std::int64_t>(bytes.size()) <= flushed_);
  put(offset, bytes);
}

void OutputFile::read_at(std::int64_t offset, std::span<std::byte> out) {
  flush();
  LLMTRAIN_CHECK(offset >= 0 && offset + static_cast<std::int64_t>(out.size()) <= flushed_);
  const ReadResult got = read_full_at(file_.get(), offset, out);
  require(got.error == 0 && got.bytes == static_cast<std::int64_t>(out.size()), ExitCode::io_error,
          "reading back {} at byte {} failed: {}", path_, offset,
          got.error != 0 ? errno_text(got.error) : "it was cut by somebody else");
}

void OutputFile::finish(Lasts lasts) {
  if (!file_) return;
  flush();
  if (lasts == Lasts::yes && ::fsync(file_.get()) != 0)
    fail(ExitCode::io_error, "fsync of {} failed: {}", path_, errno_text(errno));
  const int error = file_.close();
  require(error == 0, ExitCode::io_error, "closing {} failed: {}", path_, errno_text(error));
}

void publish(std::span<OutputFile* const> files) {
  for (OutputFile* file : files) file->finish();
  for (std::size_t i = files.size(); i-- > 0;) {
    if (::unlink(files[i]->path_.c_str()) != 0 && errno != ENOENT)
      fail(ExitCode::cannot_create, "cannot replace {}: {}", files[i]->path_, errno_text(errno));
  }
  for (std::size_t i = 0; i < files.size(); ++i) {
    if (::rename(files[i]->temporary_.c_str(), files[i]->path_.c_str()) != 0) {
      const int reason = errno;
      const std::string path = files[i]->path_;
      while (i-- > 0) ::unlink(files[i]->path_.c_str());
      fail(ExitCode::cannot_create, "cannot rename the finished file to {}: {}; nothing was left behind", path,
           errno_text(reason));
    }
    files[i]->temporary_.clear();
  }
  for (std::size_t i = 0; i < files.size(); ++i) {
    const std::string folder = folder_of(files[i]->path_);
    if (i == 0 || folder != folder_of(files[i - 1]->path_)) sync_path(folder);
  }
}

}  // namespace llmtrain
