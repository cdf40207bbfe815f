// SPDX-License-Identifier: Apache-2.0
/// POSIX calls with their errors told.
#include "files.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <limits>
#include <random>
#include <utility>

#include "llmtrain/base/error.hpp"

namespace llmtrain {

namespace {

constexpr std::size_t window = std::size_t{4} << 20;  // bytes read at once

std::string reason() { return std::strerror(errno); }

/// A file descriptor, closed at the end of its scope.
class Descriptor {
 public:
  explicit Descriptor(int value) : value_(value) {}
  ~Descriptor() {
    if (value_ >= 0) ::close(value_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return value_; }
  bool valid() const { return value_ >= 0; }
  int close() { return ::close(std::exchange(value_, -1)); }

 private:
  int value_;
};

Descriptor open_to_read(const std::filesystem::path& path) {
  return Descriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
}

/// Reads up to a buffer's size, going on after interruptions; 0 at the end of the file.
std::size_t read_some(int descriptor, std::span<char> buffer, const std::filesystem::path& path) {
  std::size_t filled = 0;
  while (filled < buffer.size()) {
    const ssize_t got = ::read(descriptor, buffer.data() + filled, buffer.size() - filled);
    if (got < 0 && errno == EINTR) continue;
    require(got >= 0, ExitCode::io_error, "cannot read {}: {}", path.string(), reason());
    if (got == 0) break;
    filled += static_cast<std::size_t>(got);
  }
  return filled;
}

FileFacts facts_of(int descriptor, const std::filesystem::path& path) {
  FileFacts facts;
  Digest digest;
  std::vector<char> buffer(window);
  while (const std::size_t got = read_some(descriptor, buffer, path)) {
    digest.add(buffer.data(), got);
    facts.size += static_cast<std::int64_t>(got);
  }
  facts.digest = digest.hex();
  return facts;
}

}  // namespace

FileFacts read_facts(const std::filesystem::path& path) {
  const Descriptor file = open_to_read(path);
  require(file.valid(), ExitCode::io_error, "cannot open {}: {}", path.string(), reason());
  return facts_of(file.get(), path);
}

std::string file_problem(const std::filesystem::path& folder, const std::string& name, const FileFacts& expected) {
  const std::filesystem::path path = folder / name;
  const Descriptor file = open_to_read(path);
  if (!file.valid()) {
    return errno == ENOENT ? fmt::format("{} is missing", name)
                           : fmt::format("{} cannot be opened: {}", name, reason());
  }
  struct stat status {};
  if (::fstat(file.get(), &status) != 0 || !S_ISREG(status.st_mode)) return fmt::format("{} is not a file", name);
  if (status.st_size != expected.size) {
    return fmt::format("{} has {} bytes instead of {}", name, status.st_size, expected.size);
  }
  try {
    const FileFacts found = facts_of(file.get(), path);
    if (found.size == expected.size && found.digest == expected.digest) return "";
    return fmt::format("{} has other contents than were written (digest {} instead of {})", name, found.digest,
                       expected.digest);
  } catch (const Error& error) {
    return error.what();
  }
}

std::string read_small_file(const std::filesystem::path& path, std::int64_t limit) {
  const Descriptor file = open_to_read(path);
  require(file.valid(), ExitCode::missing_input, "cannot open {}: {}", path.string(), reason());
  struct stat status {};
  require(::fstat(file.get(), &status) == 0 && S_ISREG(status.st_mode), ExitCode::missing_input, "{} is not a file",
          path.string());
  require(status.st_size <= limit, ExitCode::io_error, "{} has {} bytes; at most {} are read", path.string(),
          status.st_size, limit);
  std::string text(static_cast<std::size_t>(status.st_size), '\0');
  text.resize(read_some(file.get(), text, path));
  return text;
}

void write_file(const std::filesystem::path& path, std::string_view text) {
  Descriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0666));
  require(file.valid(), ExitCode::cannot_create, "cannot create {}: {}", path.string(), reason());
  while (!text.empty()) {
    const ssize_t written = ::write(file.get(), text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    require(written > 0, ExitCode::io_error, "cannot write {}: {}", path.string(), reason());
    text.remove_prefix(static_cast<std::size_t>(written));
  }
  require(::fsync(file.get()) == 0, ExitCode::io_error, "cannot sync {}: {}", path.string(), reason());
  require(file.close() == 0, ExitCode::io_error, "cannot close {}: {}", path.string(), reason());
}

void replace_file(const std::filesystem::path& path, std::string_view text) {
  std::filesystem::path fresh = path;
  fresh += ".tmp";
  write_file(fresh, text);
  rename_path(fresh, path);
}

void sync_path(const std::filesystem::path& path) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  require(file.valid(), ExitCode::io_error, "cannot open {}: {}", path.string(), reason());
  // Some network file systems cannot sync a folder and say EINVAL; a file always can.
  const bool synced = ::fsync(file.get()) == 0 || (errno == EINVAL && std::filesystem::is_directory(path));
  require(synced, ExitCode::io_error, "cannot sync {}: {}", path.string(), reason());
  ::posix_fadvise(file.get(), 0, 0, POSIX_FADV_DONTNEED);
}

void rename_path(const std::filesystem::path& from, const std::filesystem::path& to) {
  require(::rename(from.c_str(), to.c_str()) == 0, ExitCode::io_error, "cannot rename {} to {}: {}", from.string(),
          to.filename().string(), reason());
  sync_path(std::filesystem::absolute(to).parent_path());
}

void exchange_paths(const std::filesystem::path& fresh, const std::filesystem::path& old) {
  if (::renameat2(AT_FDCWD, fresh.c_str(), AT_FDCWD, old.c_str(), RENAME_EXCHANGE) != 0) {
    std::filesystem::path aside = fresh;
    aside += "0";
    require(::rename(old.c_str(), aside.c_str()) == 0, ExitCode::io_error, "cannot rename {}: {}", old.string(),
            reason());
    require(::rename(fresh.c_str(), old.c_str()) == 0, ExitCode::io_error, "cannot rename {}: {}", fresh.string(),
            reason());
    require(::rename(aside.c_str(), fresh.c_str()) == 0, ExitCode::io_error, "cannot rename {}: {}", aside.string(),
            reason());
  }
  sync_path(std::filesystem::absolute(old).parent_path());
}

std::int64_t free_bytes(const std::filesystem::path& folder) {
  struct statvfs status {};
  if (::statvfs(folder.c_str(), &status) != 0 || status.f_blocks == 0) return std::numeric_limits<std::int64_t>::max();
  return static_cast<std::int64_t>(status.f_bavail) * static_cast<std::int64_t>(status.f_frsize);
}

std::string random_suffix() {
  std::random_device device;
  return fmt::format("{:08x}", static_cast<std::uint32_t>(device()));
}

}  // namespace llmtrain
