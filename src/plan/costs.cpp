// SPDX-License-Identifier: Apache-2.0
/// The formulas of the time model.
#include "llmtrain/plan/costs.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <string_view>

#include "llmtrain/base/error.hpp"

namespace llmtrain {

namespace {

double rate_of(const Hardware& hardware, const Rates& rates, DType dtype) {
  const double rate = rates.of(dtype);
  require(
      rate > 0, ExitCode::configuration,
      "{} has no rate for products in {}: choose another precision or hardware, or give the rate in --hardware FILE",
      hardware.name, name_of(dtype));
  return rate;
}

double gemm_seconds(const Hardware& hardware, const OpNote& note) {
  const Tensor& d = note.writes[0];
  const auto m = static_cast<double>(d.rows()), n = static_cast<double>(d.cols());
  if (m * n == 0 || note.flops == 0) return 0;
  const double k = note.flops / (2 * m * n);
  const GemmModel& model = hardware.gemm;
  return note.flops / rate_of(hardware, model.rate, note.reads[0].dtype) *
         (1 + model.side / m + model.side / n + model.depth / k);
}

double attention_seconds(const Hardware& hardware, const AttentionModel& model, const OpNote& note) {
  const Tensor& out = note.writes[0];  // [tokens, heads, head_dim]
  const auto head_dim = static_cast<double>(out.extent[2]);
  const double head = model.full_head > 0 ? std::min(1.0, std::sqrt(head_dim / model.full_head)) : 1;
  return note.flops / (rate_of(hardware, model.rate, out.dtype) * head) *
         (1 + model.half / attention_sequence(note) + model.head / head_dim);
}

bool is_shift(const CollectiveNote& note) { return std::string_view(note.name) == "shift"; }
bool moves_nothing(const CollectiveNote& note) { return std::string_view(note.name) == "copy"; }

/// A member sends its parts one after the other, each to one partner: within its node, or out of it over a link of its own.
double shift_seconds(const Hardware& hardware, const GroupPlacement& placement,
                     std::span<const CollectiveNote> collectives) {
  double longest = 0;
  for (int member = 0; member < placement.fewest_on_node; ++member) {
    double inside = 0, across = 0;
    for (const CollectiveNote& note : collectives) {
      if (!is_shift(note)) continue;
      const int partner = (member + note.peer) % placement.size;
      (partner < placement.fewest_on_node ? inside : across) += static_cast<double>(note.source.bytes());
    }
    longest = std::max({longest, inside / hardware.inside.bandwidth, across / hardware.across.bandwidth});
  }
  return longest;
}

}  // namespace

GroupPlacement place_group(std::span<const int> world_ranks, int ranks_a_node) {
  std::map<int, int> members;
  for (const int rank : world_ranks) ++members[rank / ranks_a_node];
  int fewest = static_cast<int>(world_ranks.size());
  for (const auto& [node, count] : members) fewest = std::min(fewest, count);
  return {static_cast<int>(world_ranks.size()), static_cast<int>(members.size()), std::max(fewest, 1)};
}

double sent_bytes(std::string_view collective, double bytes, int size) {
  if (collective == "copy") return 0;
  for (const char* whole : {"send", "receive", "broadcast", "shift"}) {
    if (collective == whole) return bytes;
  }
  return bytes * (size - 1) / size * (collective == "all_reduce" ? 2 : 1);
}

double moved_bytes(const OpNote& note) {
  const std::string_view name = note.name;
  const bool accumulates = note.reads.size() > 1 && note.reads.back().data == note.writes[0].data;
  // Of the table only the tokens' rows move, unless backward starts it afresh.
  if (name == "embedding_forward") return 2.0 * static_cast<double>(note.writes[0].bytes());
  if (name == "embedding_backward") {
    const double table = accumulates ? 0 : static_cast<double>(note.writes[0].bytes());
    return 5.0 * static_cast<double>(note.reads[0].bytes()) + table;  // rows once, their sums in fp32 read and written
  }
  double bytes = 0;
  for (const Tensor& tensor : note.reads) bytes += static_cast<double>(tensor.bytes());
  for (const Tensor& tensor : note.writes) bytes += static_cast<double>(tensor.bytes());
  return bytes;
}

double attention_sequence(const OpNote& note) {
  // Two products forward, five backward, each of 2 x tokens x heads x head_dim x (sequence + 1) / 2.
  const double products = std::string_view(note.name) == "attention_forward" ? 2 : 5;
  return note.flops / (products * static_cast<double>(note.writes[0].numel())) - 1;
}

double operation_seconds(const Hardware& hardware, const OpNote& note) {
  const std::string_view name = note.name;
  double seconds = 0;
  if (name == "gemm") {
    seconds = gemm_seconds(hardware, note);
  } else if (name == "attention_forward" && note.flops > 0) {
    seconds = attention_seconds(hardware, hardware.attention_forward, note);
  } else if (name == "attention_backward" && note.flops > 0) {
    seconds = attention_seconds(hardware, hardware.attention_backward, note);
  } else {
    seconds = moved_bytes(note) / (hardware.bandwidth * hardware.efficiency_of(name));
  }
  return seconds + hardware.launch;
}

BatchSeconds batch_seconds(const Hardware& hardware, const GroupPlacement& placement,
                           std::span<const CollectiveNote> collectives) {
  if (placement.size == 1) return {};
  double bytes = 0;
  for (const CollectiveNote& c : collectives) {
    const std::int64_t larger = std::max(c.destination.bytes(), c.source.bytes());
    bytes += sent_bytes(c.name, static_cast<double>(larger), placement.size);
  }
  const auto beside = [](double seconds, double overlap) { return BatchSeconds{seconds, (1 - overlap) * seconds}; };
  const bool leaves = placement.nodes > 1;
  const double latency = leaves ? hardware.across.latency : hardware.inside.latency;
  CopiedBatch copied;
  for (const CollectiveNote& c : collectives) copied.add(c.name, c.source.bytes());
  if (!leaves && hardware.copies.bandwidth > 0 && copied.answer()) {
    return beside(bytes / hardware.copies.bandwidth + hardware.copies.latency, hardware.copies.overlap);
  }
  if (std::ranges::all_of(collectives, [](const CollectiveNote& c) { return is_shift(c) || moves_nothing(c); })) {
    return beside(shift_seconds(hardware, placement, collectives) + latency, hardware.overlap);
  }
  double bandwidth = hardware.inside.bandwidth;
  if (leaves) {
    const double links = placement.fewest_on_node * hardware.across.bandwidth;
    bandwidth = placement.fewest_on_node > 1 ? std::min(bandwidth, links) : links;
  }
  return beside(bytes / bandwidth + latency * std::ceil(std::log2(placement.size)), hardware.overlap);
}

}  // namespace llmtrain
