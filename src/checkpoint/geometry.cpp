// SPDX-License-Identifier: Apache-2.0
/// Integer geometry only; every product is checked, because shapes may come from a file.
#include "llmtrain/checkpoint/geometry.hpp"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "llmtrain/base/error.hpp"

namespace llmtrain {

namespace {

constexpr std::size_t max_extents = 8;

/// Elements between neighbours along each extent of a row-major array.
std::vector<std::int64_t> strides_of(std::span<const std::int64_t> shape) {
  std::vector<std::int64_t> strides(shape.size(), 1);
  for (std::size_t i = shape.size(); i-- > 1;) strides[i - 1] = strides[i] * shape[i];
  return strides;
}

/// Appends the boxes of the flat range [begin, end) below extent `depth` of the slice; `index` is the prefix above it.
void append_boxes(const Piece& piece, std::span<const std::int64_t> strides, std::size_t depth,
                  std::vector<std::int64_t> index, std::int64_t begin, std::int64_t end, std::int64_t offset,
                  std::vector<PieceBox>& boxes) {
  const std::int64_t inner = strides[depth];
  const auto descend = [&](std::int64_t row, std::int64_t from, std::int64_t to) {
    std::vector<std::int64_t> prefix = index;
    prefix.push_back(piece.slice_start[depth] + row);
    append_boxes(piece, strides, depth + 1, std::move(prefix), from - row * inner, to - row * inner,
                 offset + from - begin, boxes);
  };
  const std::int64_t first_whole = (begin + inner - 1) / inner;
  const std::int64_t last_whole = end / inner;
  if (first_whole > last_whole) return descend(begin / inner, begin, end);  // inside one row
  if (begin < first_whole * inner) descend(first_whole - 1, begin, first_whole * inner);
  if (first_whole < last_whole) {
    PieceBox box;
    box.start = index;
    box.shape.assign(index.size(), 1);
    box.start.push_back(piece.slice_start[depth] + first_whole);
    box.shape.push_back(last_whole - first_whole);
    for (std::size_t i = depth + 1; i < strides.size(); ++i) {
      box.start.push_back(piece.slice_start[i]);
      box.shape.push_back(piece.slice_shape[i]);
    }
    box.offset = offset + first_whole * inner - begin;
    boxes.push_back(std::move(box));
  }
  if (last_whole * inner < end) descend(last_whole, last_whole * inner, end);
}

/// Offset of a global index in a piece.
std::int64_t offset_of(const Piece& piece, std::span<const std::int64_t> strides, std::span<const std::int64_t> index) {
  std::int64_t flat = -piece.flat_begin;
  for (std::size_t i = 0; i < index.size(); ++i) flat += (index[i] - piece.slice_start[i]) * strides[i];
  return flat;
}

/// The copies that move one common box: blocks as long as both sides are contiguous, one strided extent of them.
void append_runs(const Piece& from, const Piece& to, std::vector<std::int64_t> start,
                 const std::vector<std::int64_t>& shape, std::vector<CopyRun>& runs) {
  const auto from_strides = strides_of(from.slice_shape);
  const auto to_strides = strides_of(to.slice_shape);
  std::size_t block = shape.size() - 1;  // blocks span the extents from here on
  std::int64_t length = shape[block];
  while (block > 0 && shape[block] == from.slice_shape[block] && shape[block] == to.slice_shape[block]) {
    --block;
    length *= shape[block];
  }
  CopyRun run;
  run.length = length;
  run.count = block > 0 ? shape[block - 1] : 1;
  run.from_stride = block > 0 ? from_strides[block - 1] : length;
  run.to_stride = block > 0 ? to_strides[block - 1] : length;
  const std::size_t outer = block > 0 ? block - 1 : 0;  // extents that are walked through one by one
  const std::vector<std::int64_t> origin = start;
  while (true) {
    run.from = offset_of(from, from_strides, start);
    run.to = offset_of(to, to_strides, start);
    runs.push_back(run);
    std::size_t i = outer;
    while (i > 0 && ++start[i - 1] == origin[i - 1] + shape[i - 1]) {
      start[i - 1] = origin[i - 1];
      --i;
    }
    if (i == 0) return;
  }
}

/// The common part of two boxes; false where there is none.
bool intersect(const std::vector<std::int64_t>& start_a, const std::vector<std::int64_t>& shape_a,
               const std::vector<std::int64_t>& start_b, const std::vector<std::int64_t>& shape_b,
               std::vector<std::int64_t>& start, std::vector<std::int64_t>& shape) {
  start.clear();
  shape.clear();
  for (std::size_t i = 0; i < start_a.size(); ++i) {
    const std::int64_t low = std::max(start_a[i], start_b[i]);
    const std::int64_t high = std::min(start_a[i] + shape_a[i], start_b[i] + shape_b[i]);
    if (low >= high) return false;
    start.push_back(low);
    shape.push_back(high - low);
  }
  return true;
}

}  // namespace

std::int64_t checked_volume(std::span<const std::int64_t> shape) {
  std::int64_t volume = 1;
  for (const std::int64_t extent : shape) {
    if (extent < 0 || __builtin_mul_overflow(volume, extent, &volume)) return -1;
  }
  return volume;
}

std::string piece_error(const Piece& piece) {
  const std::size_t n = piece.global_shape.size();
  if (n == 0 || n > max_extents) return fmt::format("{} extents (1 to {} are possible)", n, max_extents);
  if (piece.slice_start.size() != n || piece.slice_shape.size() != n) return "slice and array differ in extents";
  const std::int64_t total = checked_volume(piece.global_shape);
  if (total < 1 || total > std::int64_t{1} << 59) return fmt::format("impossible shape {}", piece.global_shape);
  for (std::size_t i = 0; i < n; ++i) {
    const std::int64_t start = piece.slice_start[i];
    const std::int64_t extent = piece.slice_shape[i];
    if (start < 0 || extent < 1 || extent > piece.global_shape[i] || start > piece.global_shape[i] - extent) {
      return fmt::format("slice at {} of shape {} lies outside {}", piece.slice_start, piece.slice_shape,
                         piece.global_shape);
    }
  }
  if (piece.flat_begin < 0 || piece.flat_end < piece.flat_begin || piece.flat_end > checked_volume(piece.slice_shape)) {
    return fmt::format("range {} to {} lies outside a slice of shape {}", piece.flat_begin, piece.flat_end,
                       piece.slice_shape);
  }
  return "";
}

std::vector<PieceBox> boxes_of(const Piece& piece) {
  std::vector<PieceBox> boxes;
  if (piece.size() == 0) return boxes;
  append_boxes(piece, strides_of(piece.slice_shape), 0, {}, piece.flat_begin, piece.flat_end, 0, boxes);
  return boxes;
}

std::vector<CopyRun> overlap(const Piece& from, const Piece& to) {
  LLMTRAIN_CHECK(from.global_shape == to.global_shape);
  std::vector<CopyRun> runs;
  std::vector<std::int64_t> start;
  std::vector<std::int64_t> shape;
  if (!intersect(from.slice_start, from.slice_shape, to.slice_start, to.slice_shape, start, shape)) return runs;
  const std::vector<PieceBox> to_boxes = boxes_of(to);
  for (const PieceBox& source : boxes_of(from)) {
    for (const PieceBox& target : to_boxes) {
      if (intersect(source.start, source.shape, target.start, target.shape, start, shape)) {
        append_runs(from, to, start, shape, runs);
      }
    }
  }
  return runs;
}

std::string coverage_error(std::span<const Piece* const> pieces) {
  if (pieces.empty()) return "no piece of it";
  std::vector<const Piece*> sorted(pieces.begin(), pieces.end());
  std::ranges::sort(sorted, [](const Piece* a, const Piece* b) {
    return std::tie(a->slice_start, a->slice_shape, a->flat_begin) <
           std::tie(b->slice_start, b->slice_shape, b->flat_begin);
  });
  std::vector<const Piece*> slices;  // one piece of each box
  std::int64_t covered = 0;
  std::vector<std::int64_t> start;
  std::vector<std::int64_t> shape;
  for (std::size_t i = 0; i < sorted.size();) {
    const Piece& slice = *sorted[i];
    for (const Piece* other : slices) {
      if (intersect(slice.slice_start, slice.slice_shape, other->slice_start, other->slice_shape, start, shape)) {
        return fmt::format("slices at {} of shape {} and at {} of shape {} overlap", other->slice_start,
                           other->slice_shape, slice.slice_start, slice.slice_shape);
      }
    }
    slices.push_back(&slice);
    std::int64_t reached = 0;
    for (; i < sorted.size() && sorted[i]->slice_start == slice.slice_start &&
           sorted[i]->slice_shape == slice.slice_shape;
         ++i) {
      if (sorted[i]->size() == 0) continue;
      if (sorted[i]->flat_begin != reached) {
        return fmt::format("elements {} to {} of the slice at {} are {}", std::min(reached, sorted[i]->flat_begin),
                           std::max(reached, sorted[i]->flat_begin), slice.slice_start,
                           sorted[i]->flat_begin > reached ? "in no piece" : "in two pieces");
      }
      reached = sorted[i]->flat_end;
    }
    const std::int64_t volume = checked_volume(slice.slice_shape);
    if (reached != volume) {
      return fmt::format("elements {} to {} of the slice at {} are in no piece", reached, volume, slice.slice_start);
    }
    covered += volume;
  }
  const std::int64_t total = checked_volume(pieces.front()->global_shape);
  return covered == total ? "" : fmt::format("{} of {} elements are in no piece", total - covered, total);
}

}  // namespace llmtrain
