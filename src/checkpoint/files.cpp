// SPDX-License-Identifier: Apache-2.0
/// Digests of whole files, renameat2 and statvfs, with their errors told.
#include "files.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <limits>
#include <memory>
#include <random>
#include <vector>

#include "llmtrain/base/error.hpp"

namespace llmtrain {

namespace {

constexpr std::size_t window = std::size_t{4} << 20;  // bytes read at once

FileReading read_open(int descriptor, const std::string& path, std::span<const FileRange> ranges) {
  FileReading reading;
  Digest digest;
  auto range = ranges.begin();
  auto part = std::make_unique<Digest>();
  std::vector<std::byte> buffer(window);
  while (true) {
    const ReadResult got = read_full(descriptor, buffer);
    require(got.error == 0, ExitCode::io_error, "cannot read {}: {}", path, errno_text(got.error));
    if (got.bytes == 0) break;
    digest.add(buffer.data(), static_cast<std::size_t>(got.bytes));
    const std::int64_t begin = reading.facts.size;
    reading.facts.size += got.bytes;
    while (range != ranges.end() && range->offset < reading.facts.size) {
      const std::int64_t from = std::max(range->offset, begin);
      const std::int64_t to = std::min(range->offset + range->bytes, reading.facts.size);
      part->add(buffer.data() + (from - begin), static_cast<std::size_t>(to - from));
      if (to < range->offset + range->bytes) break;
      reading.digests.push_back(part->hex());
      part = std::make_unique<Digest>();
      ++range;
    }
  }
  require(range == ranges.end(), ExitCode::io_error, "{} ends after {} bytes", path, reading.facts.size);
  reading.facts.digest = digest.hex();
  return reading;
}

}  // namespace

FileReading read_whole(const std::filesystem::path& path, std::span<const FileRange> ranges) {
  const std::string name = path.string();
  const FileDescriptor file = open_no_follow(name);
  if (!file) fail(ExitCode::io_error, "cannot open {}: {}", name, errno_text(errno));
  return read_open(file.get(), name, ranges);
}

std::string file_problem(const std::filesystem::path& folder, const std::string& name, const FileFacts& expected) {
  const std::string path = (folder / name).string();
  const FileDescriptor file = open_no_follow(path);
  if (!file) {
    return errno == ENOENT ? fmt::format("{} is missing", name)
                           : fmt::format("{} cannot be opened: {}", name, errno_text(errno));
  }
  struct stat status {};
  if (::fstat(file.get(), &status) != 0 || !S_ISREG(status.st_mode)) return fmt::format("{} is not a file", name);
  if (status.st_size != expected.size) {
    return fmt::format("{} has {} bytes instead of {}", name, status.st_size, expected.size);
  }
  try {
    const FileFacts found = read_open(file.get(), path, {}).facts;
    if (found.size == expected.size && found.digest == expected.digest) return "";
    return fmt::format("{} has other contents than were written (digest {} instead of {})", name, found.digest,
                       expected.digest);
  } catch (const Error& error) {
    return error.what();
  }
}

void exchange_paths(const std::filesystem::path& fresh, const std::filesystem::path& old) {
  const auto move = [](const std::filesystem::path& from, const std::filesystem::path& to) {
    if (::rename(from.c_str(), to.c_str()) != 0)
      fail(ExitCode::io_error, "cannot rename {}: {}", from.string(), errno_text(errno));
  };
  if (::renameat2(AT_FDCWD, fresh.c_str(), AT_FDCWD, old.c_str(), RENAME_EXCHANGE) != 0) {
    std::filesystem::path aside = fresh;
    aside += "0";
    move(old, aside);
    move(fresh, old);
    move(aside, fresh);
  }
  sync_path(folder_of(old));
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
