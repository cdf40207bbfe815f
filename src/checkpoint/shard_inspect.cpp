// SPDX-License-Identifier: Apache-2.0
/// What is wrong inside of a damaged shard, found by a child that may crash, loop or be fooled into asking for memory.
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <fstream>

#include <fmt/format.h>

#include "llmtrain/base/error.hpp"
#include "llmtrain/base/text.hpp"
#include "shard.hpp"

namespace llmtrain {

namespace {

constexpr rlim_t max_memory = rlim_t{4} << 30;           // bytes of addresses beside those that are taken already
constexpr std::size_t max_text = std::size_t{16} << 20;  // bytes from the child
constexpr std::int64_t slowest = 50'000'000;             // bytes a second that reading and digests take at least

void limit(int resource, rlim_t value) {
  const rlimit both{value, value};
  ::setrlimit(static_cast<__rlimit_resource>(resource), &both);
}

/// Bytes of addresses that this process has.
rlim_t addresses() {
  std::ifstream file("/proc/self/statm");
  rlim_t pages = 0;
  file >> pages;
  return pages * static_cast<rlim_t>(::sysconf(_SC_PAGESIZE));
}

/// The child's work: a line to the descriptor for each difference.
void inspect(const std::filesystem::path& folder, const std::string& name, int out) {
  const auto tell = [out](const std::string& line) { static_cast<void>(write_all(out, line + "\n")); };
  try {
    const std::vector<StoredPiece> stored = ShardFile(folder, name).scan();
    std::vector<const StoredPiece*> pieces;
    for (const StoredPiece& piece : stored) pieces.push_back(&piece);
    const PiecesReading found = read_pieces(folder / name, std::move(pieces), Threads::one);
    for (const StoredPiece* piece : found.differing) tell(difference_of(*piece));
  } catch (const std::exception& error) {
    tell(error.what());
  }
}

}  // namespace

std::vector<std::string> damaged_tensors(const std::filesystem::path& step_folder, const std::string& shard) {
  std::error_code unknown;
  const auto size = std::filesystem::file_size(step_folder / shard, unknown);
  std::array<int, 2> ends{};
  if (unknown || ::pipe(ends.data()) != 0) return {};
  FileDescriptor from(ends[0]), to(ends[1]);
  const pid_t child = ::fork();
  if (child < 0) return {};
  if (child == 0) {
    limit(RLIMIT_AS, addresses() + max_memory);
    limit(RLIMIT_CPU, 10 + static_cast<rlim_t>(static_cast<std::int64_t>(size) / slowest));
    limit(RLIMIT_CORE, 0);
    inspect(step_folder, shard, to.get());
    ::_exit(0);
  }
  to.close();
  std::string text(max_text, '\0');
  const ReadResult got = read_full(from.get(), std::as_writable_bytes(std::span(text)));
  text.resize(static_cast<std::size_t>(got.bytes));
  from.close();  // a child with more to say ends here
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  std::vector<std::string> lines = lines_of(text);
  if (!WIFEXITED(status)) lines.push_back(fmt::format("HDF5 cannot read the headers of {}", shard));
  return lines;
}

}  // namespace llmtrain
