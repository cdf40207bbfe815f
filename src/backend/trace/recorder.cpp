// SPDX-License-Identifier: Apache-2.0
/// Totals by name, and how they print.
#include <algorithm>

#include <fmt/format.h>

#include "llmtrain/backend/trace.hpp"

namespace llmtrain {

void TraceRecorder::on_operation(const OpNote& note) {
  OperationTotal& total = operations_[note.name];
  ++total.calls;
  for (const Tensor& tensor : note.reads) total.bytes_read += tensor.bytes();
  for (const Tensor& tensor : note.writes) total.bytes_written += tensor.bytes();
  total.flops += note.flops;
  if (const std::optional<GemmKey> product = product_of(note)) ++products_[*product];
  if (!keep_notes_) return;
  notes_.push_back({note.name,
                    "",
                    note.stream.id,
                    {note.writes.begin(), note.writes.end()},
                    {note.reads.begin(), note.reads.end()},
                    note.flops});
}

void TraceRecorder::on_batch(const BatchNote& batch) {
  ++batches_[batch.group->name];
  for (const CollectiveNote& note : batch.collectives) {
    CollectiveTotal& total = collectives_[{batch.group->name, note.name}];
    ++total.calls;
    total.bytes += std::max(note.destination.bytes(), note.source.bytes());
    if (!keep_notes_) continue;
    Note kept{note.name, batch.group->name, 0, {}, {}, 0};
    if (note.destination) kept.writes.push_back(note.destination);
    if (note.source) kept.reads.push_back(note.source);
    notes_.push_back(std::move(kept));
  }
}

double TraceRecorder::flops() const {
  double sum = 0;
  for (const auto& [name, total] : operations_) sum += total.flops;
  return sum;
}

void TraceRecorder::extrapolate(const TraceRecorder& longer, std::int64_t times) {
  const auto add = [times](auto& value, auto more) { value += static_cast<decltype(more)>(times) * (more - value); };
  for (const auto& [name, more] : longer.operations_) {
    OperationTotal& total = operations_[name];
    add(total.calls, more.calls);
    add(total.bytes_read, more.bytes_read);
    add(total.bytes_written, more.bytes_written);
    add(total.flops, more.flops);
  }
  for (const auto& [key, more] : longer.collectives_) {
    CollectiveTotal& total = collectives_[key];
    add(total.calls, more.calls);
    add(total.bytes, more.bytes);
  }
  for (const auto& [group, more] : longer.batches_) add(batches_[group], more);
  for (const auto& [product, more] : longer.products_) add(products_[product], more);
}

void TraceRecorder::clear() {
  operations_.clear();
  collectives_.clear();
  batches_.clear();
  products_.clear();
  notes_.clear();
}

std::string TraceRecorder::table() const {
  std::string text =
      fmt::format("{:<28} {:>10} {:>16} {:>16} {:>12}\n", "operation", "calls", "bytes read", "bytes written", "GFLOP");
  for (const auto& [name, total] : operations_) {
    text += fmt::format("{:<28} {:>10} {:>16} {:>16} {:>12.3f}\n", name, total.calls, total.bytes_read,
                        total.bytes_written, total.flops / 1e9);
  }
  text += fmt::format("{:<28} {:>10} {:>16}\n", "collective", "calls", "bytes");
  for (const auto& [key, total] : collectives_) {
    text +=
        fmt::format("{:<28} {:>10} {:>16}\n", fmt::format("{} {}", key.first, key.second), total.calls, total.bytes);
  }
  return text;
}

}  // namespace llmtrain
