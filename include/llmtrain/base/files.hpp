// SPDX-License-Identifier: Apache-2.0
/// The file calls that every module shares: read, write so that it lasts, replace at once, make folders, with the
/// documented errors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
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

// Calls on descriptors. They go on after interruptions and partial transfers, and leave the message to the caller.

/// What a read got: less than was asked for at the end of the file, or with an error.
struct ReadResult {
  std::int64_t bytes = 0;
  int error = 0;  ///< 0 or errno
};

/// Reads from where the descriptor stands until `out` is full or the file ends.
ReadResult read_full(int fd, std::span<std::byte> out);

/// The same from byte `offset`; the descriptor stays where it stands, so threads may share it.
ReadResult read_full_at(int fd, std::int64_t offset, std::span<std::byte> out);

/// Writes all of `text`. Returns 0 or errno; then a part may be written.
int write_all(int fd, std::string_view text);

/// Writes all of `bytes` from byte `offset` on. Returns 0 or errno; then a part may be written.
int write_all_at(int fd, std::int64_t offset, std::span<const std::byte> bytes);

/// Opens a file for reading; neither follows a symbolic link nor waits for the other end of a pipe. On failure none, and
/// errno says why.
FileDescriptor open_no_follow(const std::string& path);

// Calls on paths.

/// The system's text for an errno value, e.g. "No space left on device".
std::string errno_text(int error);

/// The folder that holds `path`: "a" of "a/b", "." of "b".
std::string folder_of(const std::string& path);

/// The whole file. Errors: missing_input when it cannot be opened, io_error when reading fails part-way.
std::string read_file(const std::string& path);

/// The text of a regular file of at most `limit` bytes that is no symbolic link: for files that somebody else may have
/// put there. Errors: missing_input when it cannot be opened or is none, io_error when it is larger or reading fails.
std::string read_small_file(const std::string& path, std::int64_t limit);
/// The same; "" where it cannot be read.
std::string try_read_small_file(const std::string& path, std::int64_t limit);

/// Creates or overwrites `path`, which may be no symbolic link, and flushes it to the disk; its folder is not flushed.
/// On failure a part may be there. Errors: cannot_create, io_error.
void durable_write(const std::string& path, std::string_view text);

/// Replaces `path` by `text`: written beside it, flushed to the disk, renamed, and the rename flushed. On any failure
/// the old file is untouched. Errors: cannot_create, io_error.
void atomic_write(const std::string& path, std::string_view text);

/// rename(2), then flushes the folder of `to`. Error: io_error.
void durable_rename(const std::string& from, const std::string& to);

/// Waits until a file or a folder is on its disk, and forgets its pages so that reading it back reads the disk.
/// Error: io_error.
void sync_path(const std::string& path);

/// Makes the folder and its parents; an existing folder is fine. Error: cannot_create.
void make_directories(const std::string& path);

}  // namespace llmtrain
