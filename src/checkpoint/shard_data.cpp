// SPDX-License-Identifier: Apache-2.0
/// The bytes of a shard's pieces, read without HDF5: once the headers are known each piece is a range of the file, and
/// any number of threads can read.
#include <algorithm>
#include <cerrno>
#include <cstring>

#include <fmt/format.h>

#include "llmtrain/base/error.hpp"
#include "shard.hpp"

namespace llmtrain {

namespace {

constexpr std::int64_t most = std::int64_t{4} << 20;          // bytes of one read
constexpr std::int64_t short_block = std::int64_t{64} << 10;  // bytes; shorter ones are read with what is between them

/// Blocks of a file that one call reads, and where they go.
struct Part {
  std::int64_t offset = 0;  ///< of the first block in the file
  std::int64_t length = 0;  ///< bytes of a block
  std::int64_t count = 0;
  std::int64_t from_stride = 0;  ///< bytes between the beginnings of two blocks in the file
  std::int64_t to_stride = 0;    ///< the same in memory
  std::byte* to = nullptr;

  std::int64_t span() const { return (count - 1) * from_stride + length; }
};

/// Adds parts of at most `most` bytes.
void add_parts(const Transfer& transfer, const CopyRun& run, std::vector<Part>& parts) {
  const std::int64_t width = size_of(transfer.target->dtype);
  Part part{transfer.stored->offset + run.from * width,
            run.length * width,
            run.count,
            run.from_stride * width,
            run.to_stride * width,
            static_cast<std::byte*>(transfer.target->data) + run.to * width};
  const std::int64_t together = part.length < short_block ? std::max<std::int64_t>(most / part.from_stride, 1) : 1;
  for (std::int64_t first = 0; first < run.count; first += together) {
    Part next = part;
    next.count = std::min(together, run.count - first);
    next.offset += first * part.from_stride;
    next.to += first * part.to_stride;
    for (std::int64_t at = 0; next.count == 1 && at + most < part.length; at += most) {
      parts.push_back({next.offset, most, 1, most, most, next.to});
      next.offset += most;
      next.to += most;
      next.length -= most;
    }
    parts.push_back(next);
  }
}

/// Returns 0 or errno; EIO where the file ends before the part.
int read_part(int descriptor, const Part& part, std::vector<std::byte>& buffer) {
  const bool in_place = part.count == 1;
  if (!in_place) buffer.resize(static_cast<std::size_t>(part.span()));
  std::byte* const into = in_place ? part.to : buffer.data();
  const ReadResult got = read_full_at(descriptor, part.offset, {into, static_cast<std::size_t>(part.span())});
  if (got.error != 0) return got.error;
  if (got.bytes != part.span()) return EIO;
  for (std::int64_t i = 0; !in_place && i < part.count; ++i) {
    std::memcpy(part.to + i * part.to_stride, buffer.data() + i * part.from_stride,
                static_cast<std::size_t>(part.length));
  }
  return 0;
}

}  // namespace

void read_transfers(const std::filesystem::path& path, std::span<const Transfer> transfers) {
  const FileDescriptor file = open_no_follow(path.string());
  if (!file) fail(ExitCode::io_error, "cannot open {}: {}", path.string(), errno_text(errno));
  std::vector<Part> parts;
  std::int64_t bytes = 0;
  for (const Transfer& transfer : transfers) {
    for (const CopyRun& run : transfer.runs) {
      add_parts(transfer, run, parts);
      bytes += run.elements() * size_of(transfer.target->dtype);
    }
  }
  int error = 0;
#pragma omp parallel if (bytes >= short_block)
  {
    std::vector<std::byte> buffer;
#pragma omp for schedule(dynamic)
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const int result = read_part(file.get(), parts[i], buffer);
      if (result == 0) continue;
#pragma omp critical
      error = result;
    }
  }
  require(error == 0, ExitCode::io_error, "cannot read {}: {}", path.string(), errno_text(error));
}

PiecesReading read_pieces(const std::filesystem::path& path, std::vector<const StoredPiece*> pieces, Threads threads) {
  std::ranges::sort(pieces, {}, &StoredPiece::offset);
  std::vector<FileRange> ranges;
  for (const StoredPiece* stored : pieces) ranges.push_back({stored->offset, stored->piece.bytes()});
  const FileReading found = read_whole(path, ranges, threads);
  PiecesReading reading{found.facts, {}};
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    if (found.digests[i] != pieces[i]->digest) reading.differing.push_back(pieces[i]);
  }
  return reading;
}

std::string difference_of(const StoredPiece& piece) {
  return fmt::format("{} in {} differs from its digest", piece.dataset, piece.shard);
}

}  // namespace llmtrain
