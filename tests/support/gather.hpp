// SPDX-License-Identifier: Apache-2.0
/// Tensors of any layout put together by section, to be compared with those of another layout.
#pragma once

#include <cmath>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "llmtrain/backend/workspace.hpp"
#include "llmtrain/base/bf16.hpp"
#include "llmtrain/driver/parts.hpp"
#include "llmtrain/parallel/groups.hpp"

namespace llmtrain {

/// Values of every section in its true global shape, row-major.
using Sections = std::map<std::string, std::vector<double>>;

inline double element(Tensor t, std::int64_t i) {
  if (t.dtype == DType::bf16) return static_cast<double>(static_cast<float>(t.ptr<Bf16>()[i]));
  return t.dtype == DType::fp64 ? t.ptr<double>()[i] : static_cast<double>(t.ptr<float>()[i]);
}

/// Adds up over all ranks of the layout, on every rank. Collective.
inline void sum_over_world(Parts& parts, std::vector<double>& values) {
  if (parts.world == nullptr) return;
  std::vector<std::byte> staging(1 << 20);
  const Group group{"test", parts.place.rank, parts.world->group().world_ranks, parts.place.world};
  const std::unique_ptr<Communicator> world = parts.device.make_communicator(
      group, Tensor::dense(staging.data(), DType::uint8, {static_cast<std::int64_t>(staging.size())}));
  Communicator::Batch batch(*world, {});
  batch.all_reduce(Tensor::dense(values.data(), DType::fp64, {static_cast<std::int64_t>(values.size())}));
  parts.stream.wait(batch.submit());
}

/// Sections of flat arrays of which this rank holds `chunk(storage)`, its part along the data-parallel axis. Collective.
template <class Chunk>
Sections gather_sections(Parts& parts, Chunk&& chunk) {
  Sections sections;
  for (int i = 0; i < parts.shape.storages(); ++i) {
    const auto at = static_cast<std::size_t>(i);
    const StorageSpec& spec = parts.table.storages[at];
    const StorageLayout& layout = parts.shape.layouts[at];
    for (const Section& section : spec.sections) {
      sections[section.name].assign(static_cast<std::size_t>(section.numel()), 0);
    }
    const Tensor part = chunk(i);
    const std::int64_t begin = layout.chunk * parts.shape.shard_rank;
    for (const SectionRange& range : counted_ranges(layout, begin, begin + part.numel())) {
      const Section& section = spec.sections[static_cast<std::size_t>(range.section)];
      const SectionSlice& slice = layout.slices[static_cast<std::size_t>(range.section)];
      std::vector<double>& values = sections[section.name];
      for (std::int64_t k = range.flat_begin; k < range.flat_end; ++k) {
        const std::int64_t row = slice.first_row + k / slice.cols, col = slice.first_col + k % slice.cols;
        values[static_cast<std::size_t>(row * section.cols() + col)] = element(part, range.offset + k - range.flat_begin);
      }
    }
  }
  for (auto& [name, values] : sections) sum_over_world(parts, values);
  return sections;
}

/// The reduced gradients of the step that ran last.
inline Sections gather_gradients(Parts& parts) {
  return gather_sections(parts, [&](int i) { return parts.grads.own_chunk(i); });
}

inline Sections gather_masters(Parts& parts) {
  return gather_sections(parts, [&](int i) {
    const Tensor master = parts.params.master(i);
    return parts.shape.zero == 0 ? parts.shape.own_chunk(i, master) : master;
  });
}

inline double norm_of(const std::vector<double>& x) {
  double sum = 0;
  for (const double v : x) sum += v * v;
  return std::sqrt(sum);
}

/// The first section that breaks the design's bound ||a - b|| <= e (||b|| + 1e-3 G sqrt(n / N)), G the norm of all of b, n
/// and N element counts; empty if all keep it.
inline std::string first_difference(const Sections& a, const Sections& b, double e) {
  double squares = 0, count = 0;
  for (const auto& [name, values] : b) {
    squares += norm_of(values) * norm_of(values);
    count += static_cast<double>(values.size());
  }
  for (const auto& [name, expected] : b) {
    const auto found = a.find(name);
    if (found == a.end() || found->second.size() != expected.size()) return name + " is missing";
    std::vector<double> difference = expected;
    for (std::size_t i = 0; i < expected.size(); ++i) difference[i] -= found->second[i];
    const double share = std::sqrt(static_cast<double>(expected.size()) / count);
    const double bound = e * (norm_of(expected) + 1e-3 * std::sqrt(squares) * share);
    if (!(norm_of(difference) <= bound)) {
      return fmt::format("{}: difference {} of norm {} is above {}", name, norm_of(difference), norm_of(expected), bound);
    }
  }
  return a.size() == b.size() ? "" : "there are more sections";
}

}  // namespace llmtrain
