// SPDX-License-Identifier: Apache-2.0
/// Checksums, fills and late delivery of the in-flight check.
#include "in_flight_check.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

namespace llmtrain {

namespace {

using OpKind = Communicator::OpKind;

constexpr std::byte unknown{0xff};  // four of them are a NaN in fp32, two in bf16, eight in fp64

/// A 64-bit mix of all bytes; one changed bit changes it.
std::uint64_t checksum(const void* data, std::int64_t bytes) {
  const auto* cursor = static_cast<const std::byte*>(data);
  std::uint64_t sum = static_cast<std::uint64_t>(bytes);
  for (std::int64_t i = 0; i < bytes; i += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, cursor + i, static_cast<std::size_t>(std::min<std::int64_t>(8, bytes - i)));
    sum = std::rotl((sum ^ word) * 0x9e3779b97f4a7c15u, 29);  // both steps are invertible
  }
  return sum;
}

bool all_unknown(const std::byte* begin, const std::byte* end) {
  return std::all_of(begin, end, [](std::byte b) { return b == unknown; });
}

std::byte* bytes_of(const Tensor& tensor) { return static_cast<std::byte*>(tensor.data); }

}  // namespace

bool memory_overlaps(const Tensor& a, const Tensor& b) {
  return a.bytes() > 0 && b.bytes() > 0 && bytes_of(a) < bytes_of(b) + b.bytes() &&
         bytes_of(b) < bytes_of(a) + a.bytes();
}

InFlightCheck::InFlightCheck(const Group& group, std::uint64_t sequence, std::vector<Communicator::Op>& ops)
    : group_(group), sequence_(sequence), guards_(ops.size()) {
  for (std::size_t i = 0; i < ops.size(); ++i) guard(guards_[i], ops[i]);
}

void InFlightCheck::guard(Guard& guard, Communicator::Op& op) const {
  guard.op = op;
  const bool sends_broadcast = op.kind == OpKind::broadcast && op.peer == group_.rank;
  guard.has_source = op.kind == OpKind::reduce_scatter || op.kind == OpKind::all_gather || op.kind == OpKind::shift ||
                     op.kind == OpKind::copy || op.kind == OpKind::send || sends_broadcast;
  if (guard.has_source) guard.source_sum = checksum(op.source.data, op.source.bytes());
  if (op.kind == OpKind::send || sends_broadcast) return;

  const std::byte* destination = bytes_of(op.destination);
  const std::int64_t bytes = op.destination.bytes();
  guard.result.assign(destination, destination + bytes);
  if (guard.has_source && memory_overlaps(op.destination, op.source)) {  // in place
    guard.kept_begin = std::max<std::int64_t>(0, bytes_of(op.source) - destination);
    guard.kept_end = std::min(bytes, guard.kept_begin + op.source.bytes());
  }
  std::fill(bytes_of(op.destination), bytes_of(op.destination) + guard.kept_begin, unknown);
  std::fill(bytes_of(op.destination) + guard.kept_end, bytes_of(op.destination) + bytes, unknown);
  op.destination.data = guard.result.data();
  if (!guard.has_source) op.source = op.destination;  // all_reduce, broadcast and receive work on one tensor
}

bool InFlightCheck::touches(std::span<const Communicator::Op> ops) const {
  for (const Guard& guard : guards_) {
    for (const Communicator::Op& op : ops) {
      for (const Tensor& mine : {guard.op.source, guard.op.destination}) {
        if (memory_overlaps(mine, op.source) || memory_overlaps(mine, op.destination)) return true;
      }
    }
  }
  return false;
}

void InFlightCheck::deliver() {
  for (const Guard& guard : guards_) {
    const std::string place =
        fmt::format("group '{}', batch {}: {} of {}", group_.name, sequence_, name_of(guard.op.kind),
                    (guard.has_source ? guard.op.source : guard.op.destination).describe());
    require(!guard.has_source || checksum(guard.op.source.data, guard.op.source.bytes()) == guard.source_sum,
            ExitCode::internal, "{}: its source was changed before the event was waited for", place);
    if (guard.result.empty()) continue;
    const std::byte* destination = bytes_of(guard.op.destination);
    require(all_unknown(destination, destination + guard.kept_begin) &&
                all_unknown(destination + guard.kept_end, destination + guard.op.destination.bytes()),
            ExitCode::internal, "{}: its destination was written before the event was waited for", place);
  }
  for (const Guard& guard : guards_) {
    if (!guard.result.empty()) std::memcpy(guard.op.destination.data, guard.result.data(), guard.result.size());
  }
}

}  // namespace llmtrain
