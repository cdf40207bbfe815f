// SPDX-License-Identifier: Apache-2.0
/// Digests of whole files, renameat2 and statvfs, with their errors told.
#include "files.hpp"

#include <fcntl.h>
#include <omp.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <cstddef>
#include <cstdio>
#include <limits>
#include <memory>
#include <mutex>
#include <random>
#include <utility>
#include <vector>

#include "llmtrain/base/error.hpp"

namespace llmtrain {

namespace {

constexpr std::int64_t window = std::int64_t{1} << 20;  // bytes read at once: they are in a cache still when digested

/// The digests of a file and of ranges of it, from its bytes in their order.
class Digests {
 public:
  explicit Digests(std::span<const FileRange> ranges) : ranges_(ranges) {}

  void add(std::span<const std::byte> bytes) {
    whole_.add(bytes.data(), bytes.size());
    const std::int64_t begin = std::exchange(size_, size_ + static_cast<std::int64_t>(bytes.size()));
    while (done_.size() < ranges_.size()) {
      const FileRange& range = ranges_[done_.size()];
      const std::int64_t from = std::max(range.offset, begin);
      const std::int64_t to = std::min(range.offset + range.bytes, size_);
      if (from < to) part_->add(bytes.data() + (from - begin), static_cast<std::size_t>(to - from));
      if (size_ < range.offset + range.bytes) break;
      done_.push_back(part_->hex());
      part_ = std::make_unique<Digest>();
    }
  }

  FileReading result(const std::string& path) {
    require(done_.size() == ranges_.size(), ExitCode::io_error, "{} ends after {} bytes", path, size_);
    return {{size_, whole_.hex()}, std::move(done_)};
  }

 private:
  std::span<const FileRange> ranges_;
  Digest whole_;
  std::unique_ptr<Digest> part_ = std::make_unique<Digest>();  // of the first range that is not done
  std::vector<std::string> done_;
  std::int64_t size_ = 0;
};

/// Lets threads do what must be in order. They wait asleep: OpenMP's own order spins, which slows the system's reads.
class Turns {
 public:
  void wait(std::size_t turn) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return next_ == turn; });
  }
  void pass() {
    {
      const std::lock_guard lock(mutex_);
      ++next_;
    }
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::size_t next_ = 0;
};

/// A file of so many bytes as parts of at most a window, each in place or, where `to` is null, in a buffer. The last is
/// one byte longer than the file should be, so that a file which grew is seen.
std::vector<InPlace> cut(std::int64_t size, std::span<const InPlace> in_place) {
  std::vector<InPlace> parts;
  std::int64_t at = 0;
  const auto add = [&](std::int64_t end, std::byte* to) {
    while (at < end) {
      const std::int64_t bytes = std::min(window, end - at);
      parts.push_back({{at, bytes}, to});
      at += bytes;
      if (to != nullptr) to += bytes;
    }
  };
  for (const auto& [range, to] : in_place) {
    add(range.offset, nullptr);
    add(range.offset + range.bytes, to);
  }
  add(size + 1, nullptr);
  return parts;
}

/// Threads read parts in turns and each digests its own when those before it are, so that digests go beside reads.
FileReading read_open(int descriptor, const std::string& path, std::span<const FileRange> ranges, Threads threads,
                      const Delivery& delivery) {
  struct stat status {};
  if (::fstat(descriptor, &status) != 0) fail(ExitCode::io_error, "cannot read {}: {}", path, errno_text(errno));
  ::posix_fadvise(descriptor, 0, 0, POSIX_FADV_SEQUENTIAL);
  const std::vector<InPlace> parts = cut(status.st_size, delivery.in_place);
  Digests digests(ranges);
  Turns turns;
  int error = 0;
#pragma omp parallel num_threads(threads == Threads::all && parts.size() > 1 ? omp_get_max_threads() : 1)
  {
    std::vector<std::byte> buffer(static_cast<std::size_t>(window));
#pragma omp for schedule(static, 1)
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const auto& [range, to] = parts[i];
      const std::span into(to != nullptr ? to : buffer.data(), static_cast<std::size_t>(range.bytes));
      const ReadResult got = read_full_at(descriptor, range.offset, into);
      const auto bytes = into.first(static_cast<std::size_t>(got.bytes));
      if (delivery.look) delivery.look(range.offset, bytes);
      turns.wait(i);
      if (error == 0) error = got.error;
      digests.add(bytes);
      turns.pass();
    }
  }
  require(error == 0, ExitCode::io_error, "cannot read {}: {}", path, errno_text(error));
  return digests.result(path);
}

}  // namespace

FileReading read_whole(const std::filesystem::path& path, std::span<const FileRange> ranges, Threads threads,
                       const Delivery& delivery) {
  const std::string name = path.string();
  const FileDescriptor file = open_no_follow(name);
  if (!file) fail(ExitCode::io_error, "cannot open {}: {}", name, errno_text(errno));
  return read_open(file.get(), name, ranges, threads, delivery);
}

std::string size_problem(const std::filesystem::path& folder, const std::string& name, std::int64_t bytes) {
  const FileDescriptor file = open_no_follow((folder / name).string());
  if (!file) {
    return errno == ENOENT ? fmt::format("{} is missing", name)
                           : fmt::format("{} cannot be opened: {}", name, errno_text(errno));
  }
  struct stat status {};
  if (::fstat(file.get(), &status) != 0 || !S_ISREG(status.st_mode)) return fmt::format("{} is not a file", name);
  return status.st_size == bytes ? "" : fmt::format("{} has {} bytes instead of {}", name, status.st_size, bytes);
}

std::string contents_problem(const std::string& name, const FileFacts& found, const FileFacts& expected) {
  if (found.size == expected.size && found.digest == expected.digest) return "";
  return fmt::format("{} has other contents than were written (digest {} instead of {})", name, found.digest,
                     expected.digest);
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
