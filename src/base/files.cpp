// SPDX-License-Identifier: Apache-2.0
/// Files by POSIX calls, because std::fstream tells neither why it failed nor reaches the disk.
#include "llmtrain/base/files.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <system_error>
#include <vector>

#include "llmtrain/base/error.hpp"

namespace llmtrain {

namespace {

/// Flushes the folder's own entries, so that a rename in it survives a power cut. Returns 0 or errno.
int sync_folder_of(const std::string& path) {
  const std::filesystem::path parent = std::filesystem::path(path).parent_path();
  FileDescriptor folder(::open(parent.empty() ? "." : parent.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder) return errno;
  // Some network file systems cannot flush a folder and say EINVAL; there is nothing more to do there.
  return ::fsync(folder.get()) == 0 || errno == EINVAL ? 0 : errno;
}

/// Writes, flushes and closes. Returns 0 or errno.
int write_and_close(FileDescriptor file, std::string_view text) {
  if (const int error = write_all(file.get(), text); error != 0) return error;
  if (::fsync(file.get()) != 0) return errno;
  return file.close();
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

std::string errno_text(int error) { return std::generic_category().message(error); }

std::string read_file(const std::string& path) {
  FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file)
    fail(ExitCode::missing_input, "cannot open '{}': {}; check the path and its permissions", path, errno_text(errno));
  struct stat status {};
  if (::fstat(file.get(), &status) == 0 && S_ISDIR(status.st_mode))
    fail(ExitCode::missing_input, "cannot read '{}': it is a folder; name a file", path);
  std::string text;
  std::vector<char> buffer(1 << 16);
  while (true) {
    const ssize_t got = ::read(file.get(), buffer.data(), buffer.size());
    if (got > 0) {
      text.append(buffer.data(), static_cast<std::size_t>(got));
    } else if (got == 0) {
      return text;
    } else if (errno != EINTR) {
      fail(ExitCode::io_error, "reading '{}' failed after {} bytes: {}; check the disk", path, text.size(),
           errno_text(errno));
    }
  }
}

void atomic_write(const std::string& path, std::string_view text) {
  const std::string temporary = fmt::format("{}.tmp.{}", path, ::getpid());
  FileDescriptor file(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  if (!file)
    fail(ExitCode::cannot_create, "cannot create '{}': {}; check the folder and its permissions", temporary,
         errno_text(errno));
  int error = write_and_close(std::move(file), text);
  if (error == 0 && ::rename(temporary.c_str(), path.c_str()) != 0) error = errno;
  if (error != 0) {
    ::unlink(temporary.c_str());
    fail(ExitCode::io_error, "writing '{}' failed: {}; check the space and the quota of its disk", path,
         errno_text(error));
  }
  error = sync_folder_of(path);
  require(error == 0, ExitCode::io_error, "'{}' was written, but its folder could not be flushed to the disk: {}", path,
          errno_text(error));
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
