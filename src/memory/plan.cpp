// SPDX-License-Identifier: Apache-2.0
/// Arithmetic and printing of memory plans.
#include "llmtrain/memory/plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "llmtrain/base/error.hpp"
#include "llmtrain/base/text.hpp"

namespace llmtrain {

const char* name_of(Segment segment) {
  switch (segment) {
    case Segment::params: return "params";
    case Segment::master: return "master";
    case Segment::moments: return "moments";
    case Segment::grads: return "grads";
    case Segment::activations: return "activations";
    case Segment::comm: return "comm";
    case Segment::scratch: return "scratch";
    case Segment::host: return "host";
  }
  return "?";
}

std::int64_t aligned_bytes(DType dtype, std::span<const std::int64_t> shape) {
  constexpr std::int64_t limit = std::int64_t{1} << 62;
  std::int64_t bytes = size_of(dtype);
  for (const std::int64_t extent : shape) {
    LLMTRAIN_CHECK(extent >= 0);
    const bool fits = !__builtin_mul_overflow(bytes, extent, &bytes) && bytes <= limit;
    require(fits, ExitCode::configuration,
            "a tensor of {} [{}] has more bytes than can be counted; check the sizes in the "
            "deck's model block",
            name_of(dtype), fmt::join(shape, ", "));
  }
  return (bytes + memory_alignment - 1) / memory_alignment * memory_alignment;
}

Slot MemoryPlan::request(Segment segment, std::string name, DType dtype, std::span<const std::int64_t> shape) {
  LLMTRAIN_CHECK(!shape.empty() && shape.size() <= 4);
  std::int64_t& end = bytes_[static_cast<std::size_t>(segment)];
  const std::int64_t bytes = aligned_bytes(dtype, shape);
  std::int64_t sum = 0;
  require(!__builtin_add_overflow(total(), bytes, &sum), ExitCode::configuration,
          "the memory plan has more bytes than can be counted at '{}'; check the sizes in the deck's model block",
          name);
  rows_.push_back({segment, std::move(name), dtype, {shape.begin(), shape.end()}, end, bytes});
  end += bytes;
  return {static_cast<int>(rows_.size()) - 1};
}

std::int64_t MemoryPlan::total() const {
  return std::accumulate(std::begin(bytes_), std::end(bytes_), std::int64_t{0});
}

std::int64_t MemoryPlan::device_total() const { return total() - bytes(Segment::host); }

const MemoryPlan::Row& MemoryPlan::row(Slot slot) const {
  LLMTRAIN_CHECK(slot.index >= 0 && slot.index < static_cast<int>(rows_.size()));
  return rows_[static_cast<std::size_t>(slot.index)];
}

std::string MemoryPlan::table() const {
  std::string text = fmt::format("{:<12} {:<40} {:<28} {:>16} {:>11}\n", "segment", "name", "tensor", "bytes", "");
  for (int s = 0; s < segment_count; ++s) {
    const auto segment = static_cast<Segment>(s);
    if (bytes(segment) == 0) continue;
    for (const Row& row : rows_) {
      if (row.segment != segment) continue;
      text += fmt::format("{:<12} {:<40} {:<28} {:>16} {:>11}\n", name_of(segment), row.name,
                          fmt::format("{} [{}]", name_of(row.dtype), fmt::join(row.shape, ", ")), row.bytes,
                          human_bytes(row.bytes));
    }
    text += fmt::format("{:<12} {:<69} {:>16} {:>11}\n", name_of(segment), "sum", bytes(segment),
                        human_bytes(bytes(segment)));
  }
  text += fmt::format("{:<82} {:>16} {:>11}\n", "total", total(), human_bytes(total()));
  return text;
}

std::string MemoryPlan::largest(int count) const {
  std::map<std::pair<Segment, std::string>, std::int64_t> sums;
  for (const Row& row : rows_) sums[{row.segment, row.name}] += row.bytes;
  std::vector<std::pair<std::pair<Segment, std::string>, std::int64_t>> order(sums.begin(), sums.end());
  std::stable_sort(order.begin(), order.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  if (static_cast<int>(order.size()) > count) order.resize(static_cast<std::size_t>(count));
  std::string text;
  for (const auto& [key, bytes] : order) {
    text += fmt::format("  {:<12} {:<40} {:>11}\n", name_of(key.first), key.second, human_bytes(bytes));
  }
  return text;
}

}  // namespace llmtrain
