// SPDX-License-Identifier: Apache-2.0
/// Allocation of a plan, and the report when it does not fit.
#include "llmtrain/memory/arena.hpp"

#include "llmtrain/base/error.hpp"
#include "llmtrain/base/text.hpp"
#include "llmtrain/memory/remedy.hpp"

namespace llmtrain {

namespace {

MemorySpace space_of(Segment segment) {
  return segment == Segment::host ? MemorySpace::pinned_host : MemorySpace::device;
}

}  // namespace

const char* remedy(Segment segment) {
  switch (segment) {
    case Segment::params:
      return "have parallel.zero at 3 with a low parallel.persistence, precision.keep_fp8 false, raise parallel.tensor "
             "or parallel.pipeline, or lower model.layers or model.hidden";
    case Segment::master:
    case Segment::moments: return "have parallel.zero at 1 or more, or use more ranks";
    case Segment::grads: return "have parallel.zero at 2 or 3, or raise parallel.tensor or parallel.pipeline";
    case Segment::activations:
    case Segment::scratch:
      return "lower schedule.micro_batch or model.seq_len, set schedule.recompute to selective or block, or raise "
             "parallel.tensor";
    case Segment::comm: return "lower parallel.prefetch, parallel.max_live, parallel.bucket or parallel.exchange";
    case Segment::host: return "run fewer ranks a node, or lower schedule.micro_batch or model.seq_len";
  }
  return "";
}

Arena::Arena(Device& device, const MemoryPlan& plan) : device_(device), plan_(plan) {
  for (int s = 0; s < segment_count; ++s) {
    const auto segment = static_cast<Segment>(s);
    if (plan_.bytes(segment) == 0) continue;
    memory_[s] = device_.allocate(plan_.bytes(segment), space_of(segment));
    if (memory_[s] != nullptr) continue;
    release();
    fail(ExitCode::out_of_memory,
         "not enough memory on {}: segment '{}' needs {} of the plan's {}. Largest lines of the plan:\n{}"
         "To need less, {}; the largest lines may be helped by schedule.micro_batch, parallel.zero and model.seq_len. "
         "'llmtrain plan' shows what a deck needs",
         device_.describe(), name_of(segment), human_bytes(plan_.bytes(segment)), human_bytes(plan_.total()),
         plan_.largest(8), remedy(segment));
  }
}

Arena::~Arena() { release(); }

void Arena::release() {
  for (int s = 0; s < segment_count; ++s) {
    if (memory_[s] != nullptr) device_.release(memory_[s], space_of(static_cast<Segment>(s)));
    memory_[s] = nullptr;
  }
}

std::string Arena::at(const void* address) const {
  const auto where = reinterpret_cast<std::uintptr_t>(address);
  for (const MemoryPlan::Row& row : plan_.rows()) {
    const auto begin = reinterpret_cast<std::uintptr_t>(memory_[static_cast<int>(row.segment)]) +
                       static_cast<std::uintptr_t>(row.offset);
    if (where < begin || where - begin >= static_cast<std::uintptr_t>(row.bytes)) continue;
    return fmt::format("{} {} + {} B", name_of(row.segment), row.name, where - begin);
  }
  return fmt::format("scratch memory at {}", address);
}

Tensor Arena::operator[](Slot slot) const {
  const MemoryPlan::Row& row = plan_.row(slot);
  char* segment = static_cast<char*>(memory_[static_cast<int>(row.segment)]);
  return Tensor::dense(segment == nullptr ? nullptr : segment + row.offset, row.dtype, row.shape);
}

Tensor Arena::whole(Segment segment) const {
  return Tensor::dense(memory_[static_cast<int>(segment)], DType::uint8, {plan_.bytes(segment)});
}

}  // namespace llmtrain
