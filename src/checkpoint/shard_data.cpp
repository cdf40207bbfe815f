// SPDX-License-Identifier: Apache-2.0
/// The bytes of a shard's pieces, read without HDF5: once their places are known each piece is a range of the file, and
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

/// Adds parts that span at most `most` bytes of the file.
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

/// The parts of all transfers.
std::vector<Part> parts_of(std::span<const Transfer> transfers) {
  std::vector<Part> parts;
  for (const Transfer& transfer : transfers) {
    for (const CopyRun& run : transfer.runs) add_parts(transfer, run, parts);
  }
  return parts;
}

/// Copies what a part has of the file's bytes from `offset` on to its place.
void copy_part(const Part& part, std::int64_t offset, std::span<const std::byte> bytes) {
  const std::int64_t end = offset + static_cast<std::int64_t>(bytes.size());
  const std::int64_t before = offset - part.offset - part.length;  // bytes from the first block's end
  std::int64_t i = before < 0 ? 0 : before / part.from_stride + 1;
  for (; i < part.count && part.offset + i * part.from_stride < end; ++i) {
    const std::int64_t block = part.offset + i * part.from_stride;
    const std::int64_t from = std::max(block, offset), to = std::min(block + part.length, end);
    std::memcpy(part.to + i * part.to_stride + (from - block), bytes.data() + (from - offset),
                static_cast<std::size_t>(to - from));
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
  if (!in_place) copy_part(part, part.offset, buffer);
  return 0;
}

/// What a pass over a file does with parts of it: long blocks are read where they belong, unless others want the same
/// bytes; the rest is copied as it passes. `copied` is kept by the caller.
Delivery deliver(std::vector<Part> parts, std::vector<Part>& copied) {
  Delivery delivery;
  std::ranges::sort(parts, {}, &Part::offset);
  std::int64_t taken = 0;  // end of the last block in place
  for (const Part& part : parts) {
    if (part.count == 1 && part.length >= short_block && part.offset >= taken) {
      delivery.in_place.push_back({{part.offset, part.length}, part.to});
      taken = part.offset + part.length;
    } else {
      copied.push_back(part);
    }
  }
  if (copied.empty()) return delivery;
  delivery.look = [&copied](std::int64_t offset, std::span<const std::byte> bytes) {
    const std::int64_t end = offset + static_cast<std::int64_t>(bytes.size());
    auto part = std::ranges::upper_bound(copied, offset - most, {}, &Part::offset);  // one before spans not so far
    for (; part != copied.end() && part->offset < end; ++part) copy_part(*part, offset, bytes);
  };
  return delivery;
}

}  // namespace

std::vector<std::string> prove_and_read(const std::filesystem::path& folder, const ManifestFile& file,
                                        std::vector<const StoredPiece*> pieces, std::span<const Transfer> transfers) {
  std::vector<std::string> problems{size_problem(folder, file.name, file.size)};
  if (!problems.front().empty()) return problems;
  try {
    std::vector<Part> copied;
    const Delivery delivery = deliver(parts_of(transfers), copied);
    const PiecesReading found = read_pieces(folder / file.name, std::move(pieces), Threads::all, delivery);
    problems.front() = contents_problem(file.name, found.facts, {file.size, file.digest});
    if (problems.front().empty()) problems.clear();
    for (const StoredPiece* stored : found.differing) problems.push_back(difference_of(*stored));
  } catch (const Error& error) {
    problems.front() = error.what();
  }
  return problems;
}

void read_transfers(const std::filesystem::path& path, std::span<const Transfer> transfers) {
  const FileDescriptor file = open_no_follow(path.string());
  if (!file) fail(ExitCode::io_error, "cannot open {}: {}", path.string(), errno_text(errno));
  const std::vector<Part> parts = parts_of(transfers);
  std::int64_t bytes = 0;
  for (const Transfer& transfer : transfers) bytes += transfer.bytes();
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

PiecesReading read_pieces(const std::filesystem::path& path, std::vector<const StoredPiece*> pieces, Threads threads,
                          const Delivery& delivery) {
  std::ranges::sort(pieces, {}, &StoredPiece::offset);
  std::vector<FileRange> ranges;
  for (const StoredPiece* stored : pieces) ranges.push_back({stored->offset, stored->piece.bytes()});
  const FileReading found = read_whole(path, ranges, threads, delivery);
  PiecesReading reading{found.facts, {}};
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    if (found.digests[i] != pieces[i]->digest) reading.differing.push_back(pieces[i]);
  }
  return reading;
}

std::string read_deck_at(const std::filesystem::path& folder, const StoredDeck& deck) {
  const std::string name = shard_name(0);
  const FileDescriptor file = open_no_follow((folder / name).string());
  if (!file) fail(ExitCode::io_error, "cannot open {}: {}", name, errno_text(errno));
  std::string text(static_cast<std::size_t>(deck.bytes), '\0');
  const ReadResult got = read_full_at(file.get(), deck.offset, std::as_writable_bytes(std::span(text)));
  require(got.error == 0, ExitCode::io_error, "cannot read {}: {}", name, errno_text(got.error));
  require(got.bytes == deck.bytes && digest_of(text) == deck.digest, ExitCode::checkpoint_damaged,
          "{} in {} differs from its digest", deck_dataset, name);
  text.resize(text.find_last_not_of('\0') + 1);
  return text;
}

}  // namespace llmtrain
