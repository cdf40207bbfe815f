// SPDX-License-Identifier: Apache-2.0
/// Walks the boxes of a flat range, so that chunked and whole storage get the same bits.
#include "llmtrain/params/initialise.hpp"

namespace llmtrain {

void initialise(Kernels& kernels, Stream stream, Tensor destination, const StorageSpec& storage,
                const StorageLayout& layout, std::int64_t begin, std::uint64_t seed) {
  kernels.fill(stream, destination, 0.0);
  for (const SectionRange& range : section_ranges(layout, begin, begin + destination.numel())) {
    const Section& section = storage.sections[static_cast<std::size_t>(range.section)];
    const SectionSlice& slice = layout.slices[static_cast<std::size_t>(range.section)];
    const Tensor flat = destination.flat(range.offset, range.flat_end - range.flat_begin);
    if (section.init.kind == Init::Kind::constant) {
      kernels.fill(stream, flat, section.init.value);
      continue;
    }
    for (const Box& box : boxes_of(slice.cols, range.flat_begin, range.flat_end)) {
      const Tensor part = flat.flat(box.offset, box.rows * box.cols).reshaped({box.rows, box.cols});
      kernels.init_normal(stream, part, {seed, name_hash(section.name)},
                          {slice.first_row + box.row, slice.first_col + box.col, section.cols()}, section.init.value);
    }
  }
}

}  // namespace llmtrain
