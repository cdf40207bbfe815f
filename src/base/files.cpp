// SPDX-License-Identifier: Apache-2.0
/// Files by POSIX calls, because std::fstream tells neither why it failed nor reaches the disk.
#include "llmtrain/base/files.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>
#include <vector>

#include "llmtrain/base/beacon.hpp"
#include "llmtrain/base/error.hpp"

namespace llmtrain {

namespace {

/// Bytes that one call of the system moves at most: from one to the next a process shows that it gets on, however slow its
/// file system is.
constexpr std::size_t most_at_once = std::size_t{64} << 20;

/// Sends what of a file is in memory to its disk, piece by piece, for one fsync of all shows nothing of how it gets on.
/// Returns 0 or errno.
int write_back(int fd, std::int64_t size) {
  constexpr auto piece = static_cast<std::int64_t>(most_at_once);
  constexpr unsigned all = SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER;
  for (std::int64_t at = 0; at < size; at += piece) {
    if (::sync_file_range(fd, at, piece, all) != 0) {
      return errno == ENOSYS || errno == EINVAL || errno == ESPIPE ? 0 : errno;  // fsync is left
    }
    Beacon::beat();
  }
  return 0;
}

/// Flushes an open file or folder. Returns 0 or errno.
int sync(const FileDescriptor& file) {
  struct stat status {};
  const bool known = ::fstat(file.get(), &status) == 0;
  if (known && S_ISREG(status.st_mode)) {
    if (const int error = write_back(file.get(), status.st_size); error != 0) return error;
  }
  if (::fsync(file.get()) == 0) return 0;
  // Some network file systems cannot flush a folder and say EINVAL; there is nothing more to do there. A file always can.
  return errno == EINVAL && known && S_ISDIR(status.st_mode) ? 0 : errno;
}

/// Flushes a file or a folder and forgets its pages. Returns 0 or errno.
int open_and_sync(const std::string& path) {
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) return errno;
  if (const int error = sync(file); error != 0) return error;
  ::posix_fadvise(file.get(), 0, 0, POSIX_FADV_DONTNEED);
  return 0;
}

/// Creates or empties a file, which must be no symbolic link.
FileDescriptor create(const std::string& path) {
  FileDescriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0666));
  if (!file)
    fail(ExitCode::cannot_create, "cannot create '{}': {}; check the folder and its permissions", path,
         errno_text(errno));
  return file;
}

/// Writes, flushes and closes. Returns 0 or errno.
int write_and_close(FileDescriptor file, std::string_view text) {
  if (const int error = write_all(file.get(), text); error != 0) return error;
  if (const int error = sync(file); error != 0) return error;
  return file.close();
}

[[noreturn]] void fail_to_write(const std::string& path, int error) {
  fail(ExitCode::io_error, "writing '{}' failed: {}; check the space and the quota of its disk", path,
       errno_text(error));
}

/// Calls `read_some(done)`, a read of what is missing behind the first `done` bytes, until `size` bytes or the end.
template <class ReadSome>
ReadResult read_until(std::size_t size, ReadSome read_some) {
  std::size_t done = 0;
  int error = 0;
  while (done < size && error == 0) {
    const ssize_t got = read_some(done);
    if (got == 0) break;
    if (got > 0) {
      done += static_cast<std::size_t>(got);
    } else if (errno != EINTR) {
      error = errno;
    }
  }
  return {static_cast<std::int64_t>(done), error};
}

}  // namespace

int FileDescriptor::close() {
  const int fd = std::exchange(fd_, -1);
  return fd >= 0 && ::close(fd) != 0 && errno != EINTR ? errno : 0;
}

int write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(fd, text.data(), text.size());
    if (written > 0) {
      text.remove_prefix(static_cast<std::size_t>(written));
    } else if (written == 0) {
      return EIO;
    } else if (errno == EAGAIN) {
      // A pipe that the other side made non-blocking is full: wait for room as a blocking one would.
      pollfd wait{fd, POLLOUT, 0};
      ::poll(&wait, 1, -1);
    } else if (errno != EINTR) {
      return errno;
    }
  }
  return 0;
}

int write_all_at(int fd, std::int64_t offset, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::pwrite(fd, bytes.data(), std::min(bytes.size(), most_at_once), offset);
    if (written > 0) {
      Beacon::beat();
      offset += written;
      bytes = bytes.subspan(static_cast<std::size_t>(written));
    } else if (written == 0) {
      return EIO;
    } else if (errno != EINTR) {
      return errno;
    }
  }
  return 0;
}

ReadResult read_full(int fd, std::span<std::byte> out) {
  return read_until(out.size(), [&](std::size_t done) { return ::read(fd, out.data() + done, out.size() - done); });
}

ReadResult read_full_at(int fd, std::int64_t offset, std::span<std::byte> out) {
  return read_until(out.size(), [&](std::size_t done) {
    Beacon::beat();
    return ::pread(fd, out.data() + done, std::min(out.size() - done, most_at_once), offset + static_cast<off_t>(done));
  });
}

FileDescriptor open_no_follow(const std::string& path) {
  return FileDescriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
}

std::string errno_text(int error) { return std::generic_category().message(error); }

std::string folder_of(const std::string& path) {
  const std::string folder = std::filesystem::path(path).parent_path().string();
  return folder.empty() ? "." : folder;
}

std::string read_file(const std::string& path) {
  FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file)
    fail(ExitCode::missing_input, "cannot open '{}': {}; check the path and its permissions", path, errno_text(errno));
  struct stat status {};
  if (::fstat(file.get(), &status) == 0 && S_ISDIR(status.st_mode))
    fail(ExitCode::missing_input, "cannot read '{}': it is a folder; name a file", path);
  // The size says nothing: files of /proc have none.
  std::string text;
  std::vector<char> buffer(1 << 16);
  while (true) {
    const ReadResult got = read_full(file.get(), std::as_writable_bytes(std::span(buffer)));
    text.append(buffer.data(), static_cast<std::size_t>(got.bytes));
    require(got.error == 0, ExitCode::io_error, "reading '{}' failed after {} bytes: {}; check the disk", path,
            text.size(), errno_text(got.error));
    if (got.bytes < static_cast<std::int64_t>(buffer.size())) return text;
  }
}

std::string read_small_file(const std::string& path, std::int64_t limit) {
  const FileDescriptor file = open_no_follow(path);
  if (!file) fail(ExitCode::missing_input, "cannot open {}: {}", path, errno_text(errno));
  struct stat status {};
  require(::fstat(file.get(), &status) == 0 && S_ISREG(status.st_mode), ExitCode::missing_input, "{} is not a file",
          path);
  require(status.st_size <= limit, ExitCode::io_error, "{} has {} bytes; at most {} are read", path, status.st_size,
          limit);
  std::string text(static_cast<std::size_t>(status.st_size), '\0');
  const ReadResult got = read_full(file.get(), std::as_writable_bytes(std::span(text)));
  require(got.error == 0, ExitCode::io_error, "cannot read {}: {}", path, errno_text(got.error));
  text.resize(static_cast<std::size_t>(got.bytes));
  return text;
}

std::string try_read_small_file(const std::string& path, std::int64_t limit) {
  try {
    return read_small_file(path, limit);
  } catch (const Error&) {
    return "";
  }
}

void durable_write(const std::string& path, std::string_view text) {
  if (const int error = write_and_close(create(path), text); error != 0) fail_to_write(path, error);
}

void atomic_write(const std::string& path, std::string_view text) {
  const std::string temporary = fmt::format("{}.tmp.{}", path, ::getpid());
  int error = write_and_close(create(temporary), text);
  if (error == 0 && ::rename(temporary.c_str(), path.c_str()) != 0) error = errno;
  if (error != 0) {
    ::unlink(temporary.c_str());
    fail_to_write(path, error);
  }
  error = open_and_sync(folder_of(path));
  require(error == 0, ExitCode::io_error, "'{}' was written, but its folder could not be flushed to the disk: {}", path,
          errno_text(error));
}

void durable_rename(const std::string& from, const std::string& to) {
  if (::rename(from.c_str(), to.c_str()) != 0)
    fail(ExitCode::io_error, "cannot rename {} to {}: {}", from, to, errno_text(errno));
  sync_path(folder_of(to));
}

void sync_path(const std::string& path) {
  const int error = open_and_sync(path);
  require(error == 0, ExitCode::io_error, "cannot flush {} to the disk: {}", path, errno_text(error));
}

void make_directories(const std::string& path) {
  // create_directories() takes an existing file in the folder's place for success on some versions: look afterwards.
  std::error_code error;
  std::filesystem::create_directories(path, error);
  std::error_code ignored;
  if (!error && !std::filesystem::is_directory(path, ignored)) error = std::make_error_code(std::errc::not_a_directory);
  require(!error, ExitCode::cannot_create,
          "cannot make the folder '{}': {}; choose another place or check its permissions", path, error.message());
}

}  // namespace llmtrain
