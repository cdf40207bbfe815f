// SPDX-License-Identifier: Apache-2.0
/// Section ranges of chunks become pieces; device memory is mirrored where the host cannot read it.
#include "llmtrain/driver/state.hpp"

#include <utility>

#include "llmtrain/base/error.hpp"

namespace llmtrain {

std::int64_t state_bytes_of_element(const StoreTypes& types) {
  return size_of(types.masters) + 2 * size_of(types.moments);
}

std::int64_t owned_state_bytes(const StoreShape& shape) {
  std::int64_t elements = 0;
  for (int i = 0; i < shape.storages(); ++i) {
    for (const Span& span : shape.counted(i)) elements += span.count;
  }
  return elements * state_bytes_of_element(shape.types);
}

StateMirror::StateMirror(Parts& parts, StatePart part, Tensor buffer) : parts_(parts), buffer_(buffer) {
  for (int i = 0; i < parts.shape.storages(); ++i) {
    add("", i, parts.params.master(i), part);
    add("/optimizer/exp_avg", i, parts.optimizer.exp_avg(i), part);
    add("/optimizer/exp_avg_sq", i, parts.optimizer.exp_avg_sq(i), part);
  }
}

void StateMirror::add(const std::string& prefix, int storage, Tensor flat, StatePart part) {
  const StoreShape& shape = parts_.shape;
  const StorageSpec& spec = shape.spec(storage);
  const StorageLayout& layout = shape.layout(storage);
  const bool owned = part == StatePart::owned;
  const std::int64_t begin = shape.updated_begin(storage);
  const std::vector<SectionRange> ranges =
      owned ? counted_ranges(spec, layout, shape.place.chunk) : section_ranges(layout, begin, begin + flat.numel());
  if (owned && shape.zero == 0) flat = shape.own_chunk(storage, flat);
  const bool is_copied = buffer_.data != nullptr || parts_.device.kind() != DeviceKind::cpu;
  for (const SectionRange& range : ranges) {
    const Section& section = spec.sections[static_cast<std::size_t>(range.section)];
    const SectionSlice& slice = layout.slices[static_cast<std::size_t>(range.section)];
    const Tensor tensor = flat.flat(range.offset, range.flat_end - range.flat_begin);
    Piece piece;
    piece.dataset = prefix + dataset_path(section.name);
    piece.dtype = tensor.dtype;
    piece.global_shape = section.shape;
    piece.slice_start = {slice.first_row};
    piece.slice_shape = {slice.rows};
    if (section.shape.size() > 1) {
      piece.slice_start.push_back(slice.first_col);
      piece.slice_shape.push_back(slice.cols);
    }
    piece.flat_begin = range.flat_begin;
    piece.flat_end = range.flat_end;
    piece.data = tensor.data;
    if (is_copied) {
      piece.data = host_memory(tensor.bytes());
      copies_.push_back({tensor, pieces_.size()});
    }
    pieces_.push_back(std::move(piece));
  }
}

std::byte* StateMirror::host_memory(std::int64_t bytes) {
  if (buffer_.data == nullptr) return host_.emplace_back(static_cast<std::size_t>(bytes)).data();
  LLMTRAIN_CHECK(used_ + bytes <= buffer_.bytes());
  return static_cast<std::byte*>(buffer_.data) + std::exchange(used_, used_ + bytes);
}

void StateMirror::download() {
  for (const Copy& copy : copies_) parts_.device.download(parts_.stream, pieces_[copy.piece].data, copy.tensor);
  parts_.stream.synchronize();
}

void StateMirror::upload() {
  for (const Copy& copy : copies_) parts_.device.upload(parts_.stream, copy.tensor, pieces_[copy.piece].data);
  parts_.params.refresh(parts_.kernels, parts_.stream);
  parts_.stream.synchronize();
}

}  // namespace llmtrain
