// SPDX-License-Identifier: Apache-2.0
/// The geometry of pieces: flat ranges as boxes of the global array, what two pieces share, and exact coverage.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "llmtrain/checkpoint/piece.hpp"

namespace llmtrain {

/// A box of a global array whose elements follow each other without gaps in a piece.
struct PieceBox {
  std::vector<std::int64_t> start;  ///< global index of its first element
  std::vector<std::int64_t> shape;
  std::int64_t offset = 0;  ///< of its first element in the piece
};

/// `count` blocks of `length` elements, equally spaced in two pieces.
struct CopyRun {
  std::int64_t from = 0;         ///< offset of the first block in the source piece
  std::int64_t to = 0;           ///< offset of the first block in the destination piece
  std::int64_t length = 0;       ///< elements of a block
  std::int64_t count = 0;        ///< blocks
  std::int64_t from_stride = 0;  ///< distance between blocks in the source, >= length
  std::int64_t to_stride = 0;    ///< the same in the destination

  std::int64_t elements() const { return length * count; }
};

/// Product of the extents, or -1 where an extent is negative or the product does not fit.
std::int64_t checked_volume(std::span<const std::int64_t> shape);

/// What is wrong with a piece's shapes and range, or "" if nothing is.
std::string piece_error(const Piece& piece);

/// The boxes of a piece in flat order: at most 2 n - 1 for n extents (head of a row, whole rows, tail of a row).
std::vector<PieceBox> boxes_of(const Piece& piece);

/// What `from` and `to`, pieces of the same array, have in common, as strided copies.
std::vector<CopyRun> overlap(const Piece& from, const Piece& to);

/// What keeps the pieces of one array from covering it exactly once, or "" if nothing does. Boxes of two pieces must
/// be equal or disjoint, which every layout of llmtrain guarantees.
std::string coverage_error(std::span<const Piece* const> pieces);

}  // namespace llmtrain
