// SPDX-License-Identifier: Apache-2.0
/// Whole files and folders with the documented errors: read, write so that a reader sees all or nothing, make folders.
#pragma once

#include <string>
#include <string_view>
#include <utility>

namespace llmtrain {

/// Owns an open file descriptor; -1 is none.
class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int fd) : fd_(fd) {}
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    if (this != &other) {
      close();
      fd_ = std::exchange(other.fd_, -1);
    }
    return *this;
  }
  ~FileDescriptor() { close(); }

  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  int close();  ///< 0 or errno: some file systems report a failed write only here

 private:
  int fd_ = -1;
};

/// Writes all of `text`, through interruptions and partial writes. Returns 0 or errno; then a part may be written.
int write_all(int fd, std::string_view text);

/// The system's text for an errno value, e.g. "No space left on device".
std::string errno_text(int error);

/// The whole file. Errors: missing_input when it cannot be opened, io_error when reading fails part-way.
std::string read_file(const std::string& path);

/// Replaces `path` by `text`: written beside it, flushed to the disk, renamed, and the rename flushed. On any failure
/// the old file is untouched. Errors: cannot_create, io_error.
void atomic_write(const std::string& path, std::string_view text);

/// Makes the folder and its parents; an existing folder is fine. Error: cannot_create.
void make_directories(const std::string& path);

}  // namespace llmtrain
