// SPDX-License-Identifier: Apache-2.0
/// Who owns what: tensor-parallel slices of sections, their stacking into one flat local array, and its cut into equal
/// chunks over the shard group. The only code that knows chunks and boxes; pure arithmetic.
#pragma once

#include <cstdint>
#include <vector>

#include "llmtrain/params/param_table.hpp"

namespace llmtrain {

/// Chunks start at multiples of this many elements, so that every rank's range is aligned for vector access.
inline constexpr std::int64_t chunk_multiple = 128;

/// This tensor rank's part of one section.
struct SectionSlice {
  std::int64_t first_row = 0;  ///< in the global matrix
  std::int64_t first_col = 0;
  std::int64_t rows = 0;  ///< true rows (vocabulary padding excluded; may be 0)
  std::int64_t cols = 0;
  std::int64_t stored_rows = 0;  ///< rows in memory, padding included
  std::int64_t begin = 0;        ///< first element in the storage's flat local array
  int copies = 1;                ///< tensor ranks that hold this same slice
  int copy = 0;                  ///< which of them this rank is; copy 0 counts and writes it
  std::int64_t numel() const { return rows * cols; }
};

/// One storage tensor as a tensor rank stores it: [rows, cols], then read as one flat array.
struct StorageLayout {
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::vector<SectionSlice> slices;  ///< one a section
  std::int64_t padded = 0;           ///< elements allocated: rows * cols rounded up to shards * chunk_multiple
  std::int64_t chunk = 0;            ///< padded / shards
  std::int64_t numel() const { return rows * cols; }
};

/// Lays out a storage for one tensor rank; `shards` is the number of chunks (ZeRO's shard group).
StorageLayout layout_of(const StorageSpec& storage, int tensor_rank, int tensor_size, int shards);

/// Part of a section inside a flat range of the storage.
struct SectionRange {
  int section = 0;
  std::int64_t flat_begin = 0;  ///< in the slice read row-major, true elements only
  std::int64_t flat_end = 0;
  std::int64_t offset = 0;  ///< of flat_begin from the start of the given range
};

/// The section parts inside elements [begin, end) of the flat local array, in order, padding left out.
std::vector<SectionRange> section_ranges(const StorageLayout& layout, std::int64_t begin, std::int64_t end);

/// This rank's place among the ranks that store a tensor rank's storages.
struct ChunkPlace {
  int shard = 0;    ///< whose chunk of the flat array is its own
  int replica = 0;  ///< which of the equal copies of that chunk
};

/// The section parts of this rank's own chunk that it counts in norms and writes to files, at offsets from the chunk's
/// start: over all ranks of a world each true element is in exactly one list, whatever the ZeRO level.
std::vector<SectionRange> counted_ranges(const StorageSpec& storage, const StorageLayout& layout, ChunkPlace place);

/// Elements [begin, begin + count) of a flat array.
struct Span {
  std::int64_t begin = 0;
  std::int64_t count = 0;
};

/// counted_ranges without regard to sections: what lies side by side is one span.
std::vector<Span> counted_spans(const StorageSpec& storage, const StorageLayout& layout, ChunkPlace place);

/// Whether the ranks that hold this slice have partial gradients, which add up to the full one. `sequence`: the tensor
/// ranks share tokens.
bool has_partial_gradient(const Section& section, const SectionSlice& slice, bool sequence);

/// A rectangle of a row-major matrix.
struct Box {
  std::int64_t row = 0;
  std::int64_t col = 0;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t offset = 0;  ///< of its first element from the start of the flat range
};

/// A flat range [begin, end) of a row-major matrix with `cols` columns as at most three boxes.
std::vector<Box> boxes_of(std::int64_t cols, std::int64_t begin, std::int64_t end);

}  // namespace llmtrain
