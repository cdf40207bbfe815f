// SPDX-License-Identifier: Apache-2.0
/// Slices, chunks and boxes.
#include "llmtrain/params/ownership.hpp"

#include <algorithm>

#include "llmtrain/base/error.hpp"

namespace llmtrain {

namespace {

/// Elements [first, first + count) of an axis cut over tensor ranks, and how many ranks share them.
struct AxisPart {
  std::int64_t first;
  std::int64_t count;
  int copies;
  int copy;
};

AxisPart cut(std::int64_t extent, std::int64_t units, int rank, int size) {
  if (units == 0) units = extent;
  if (units % size == 0) {
    const std::int64_t count = extent / size;
    return {rank * count, count, 1, 0};
  }
  LLMTRAIN_CHECK(size % units == 0 && extent % units == 0);
  const int copies = static_cast<int>(size / units);
  const std::int64_t count = extent / units;
  return {rank / copies * count, count, copies, rank % copies};
}

SectionSlice slice_of(const Section& section, int rank, int size) {
  SectionSlice slice;
  const std::int64_t padded_rows = section.padded_rows == 0 ? section.rows() : section.padded_rows;
  slice.rows = section.rows();
  slice.cols = section.cols();
  slice.stored_rows = padded_rows;
  if (section.split == SplitAxis::none) {
    slice.copies = size;
    slice.copy = rank;
    return slice;
  }
  const bool by_rows = section.split == SplitAxis::rows;
  const AxisPart part = cut(by_rows ? padded_rows : section.cols(), section.units, rank, size);
  slice.copies = part.copies;
  slice.copy = part.copy;
  if (by_rows) {
    slice.first_row = part.first;
    slice.stored_rows = part.count;
    slice.rows = std::clamp<std::int64_t>(section.rows() - part.first, 0, part.count);
  } else {
    slice.first_col = part.first;
    slice.cols = part.count;
  }
  return slice;
}

}  // namespace

StorageLayout layout_of(const StorageSpec& storage, int tensor_rank, int tensor_size, int shards) {
  StorageLayout layout;
  for (const Section& section : storage.sections) {
    SectionSlice slice = slice_of(section, tensor_rank, tensor_size);
    LLMTRAIN_CHECK(layout.slices.empty() || slice.cols == layout.cols);
    layout.cols = slice.cols;
    slice.begin = layout.rows * layout.cols;
    layout.rows += slice.stored_rows;
    layout.slices.push_back(slice);
  }
  const std::int64_t unit = shards * chunk_multiple;
  layout.padded = (layout.numel() + unit - 1) / unit * unit;
  layout.chunk = layout.padded / shards;
  return layout;
}

std::vector<SectionRange> section_ranges(const StorageLayout& layout, std::int64_t begin, std::int64_t end) {
  std::vector<SectionRange> ranges;
  for (std::size_t i = 0; i < layout.slices.size(); ++i) {
    const SectionSlice& slice = layout.slices[i];
    const std::int64_t first = std::max(begin, slice.begin);
    const std::int64_t last = std::min(end, slice.begin + slice.numel());
    if (first >= last) continue;
    ranges.push_back({static_cast<int>(i), first - slice.begin, last - slice.begin, first - begin});
  }
  return ranges;
}

std::vector<SectionRange> counted_ranges(const StorageSpec& storage, const StorageLayout& layout, ChunkPlace place) {
  if (place.replica != 0 || storage.tied == TiedCopy::last) return {};
  const std::int64_t begin = layout.chunk * place.shard;
  std::vector<SectionRange> ranges = section_ranges(layout, begin, begin + layout.chunk);
  std::erase_if(ranges, [&](const SectionRange& range) {
    return layout.slices[static_cast<std::size_t>(range.section)].copy != 0;
  });
  return ranges;
}

std::vector<Span> counted_spans(const StorageSpec& storage, const StorageLayout& layout, ChunkPlace place) {
  std::vector<Span> spans;
  for (const SectionRange& range : counted_ranges(storage, layout, place)) {
    const std::int64_t count = range.flat_end - range.flat_begin;
    if (!spans.empty() && spans.back().begin + spans.back().count == range.offset) {
      spans.back().count += count;
    } else {
      spans.push_back({range.offset, count});
    }
  }
  return spans;
}

bool has_partial_gradient(const Section& section, const SectionSlice& slice, bool sequence) {
  if (slice.copies == 1) return false;
  return section.gradient_over == GradientOver::heads || (section.gradient_over == GradientOver::tokens && sequence);
}

std::vector<Box> boxes_of(std::int64_t cols, std::int64_t begin, std::int64_t end) {
  std::vector<Box> boxes;
  std::int64_t at = begin;
  const auto take = [&](std::int64_t rows, std::int64_t width) {
    boxes.push_back({at / cols, at % cols, rows, width, at - begin});
    at += rows * width;
  };
  if (at < end && at % cols != 0) take(1, std::min(cols - at % cols, end - at));
  if (end - at >= cols) take((end - at) / cols, cols);
  if (at < end) take(1, end - at);
  return boxes;
}

}  // namespace llmtrain
