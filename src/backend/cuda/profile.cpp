// SPDX-License-Identifier: Apache-2.0
/// Marks, their differences, and the table.
#include "profile.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace llmtrain {

namespace {

constexpr std::int64_t warm_up_steps = 3;

double bytes_of(std::span<const Tensor> tensors) {
  double bytes = 0;
  for (const Tensor& t : tensors) bytes += static_cast<double>(t.bytes());
  return bytes;
}

}  // namespace

OperationProfile::~OperationProfile() {
  std::vector<std::pair<std::string, Total>> rows(totals_.begin(), totals_.end());
  std::sort(rows.begin(), rows.end(), [](const auto& a, const auto& b) { return a.second.seconds > b.second.seconds; });
  const double steps = static_cast<double>(std::max<std::int64_t>(steps_ - warm_up_steps, 1));
  double all = 0;
  for (const auto& [name, total] : rows) all += total.seconds;
  fmt::print(stderr, "device time by operation, a step: {:.3f} ms\n{:>9} {:>6} {:>7} {:>9} {:>9}  {}\n",
             all / steps * 1e3, "ms", "%", "calls", "TB/s", "TFLOP/s", "operation, first result");
  for (const auto& [name, total] : rows) {
    fmt::print(stderr, "{:9.3f} {:6.2f} {:7.0f} {:9.3f} {:9.1f}  {}\n", total.seconds / steps * 1e3,
               100 * total.seconds / all, static_cast<double>(total.calls) / steps, total.bytes / total.seconds / 1e12,
               total.flops / total.seconds / 1e12, name);
  }
  for (cudaEvent_t event : events_) cudaEventDestroy(event);
}

void OperationProfile::mark(Mark mark) {
  if (marks_.size() == events_.size()) {
    cudaEvent_t event = nullptr;
    check_cuda(cudaEventCreate(&event), "cudaEventCreate");
    events_.push_back(event);
  }
  check_cuda(cudaEventRecord(events_[marks_.size()], streams_[Stream{nullptr, mark.stream}]), "cudaEventRecord");
  marks_.push_back(std::move(mark));
}

void OperationProfile::on_operation(const OpNote& note) {
  std::string name = fmt::format("{} {}{}", note.name, note.form, *note.form != 0 ? " " : "");
  if (!note.writes.empty()) {
    const Tensor& t = note.writes[0];
    name += t.describe();
    if (note.flops > 0) name += fmt::format(" depth {:.0f}", note.flops / 2 / static_cast<double>(t.numel()));
  }
  mark({std::move(name), note.stream.id, bytes_of(note.writes) + bytes_of(note.reads), note.flops});
}

void OperationProfile::end_step(Stream stream) {
  if (marks_.empty()) return;
  mark({"", stream.id, 0, 0});
  check_cuda(cudaEventSynchronize(events_[marks_.size() - 1]), "cudaEventSynchronize");
  const bool counts = steps_++ >= warm_up_steps;
  for (std::size_t i = 0; counts && i + 1 < marks_.size(); ++i) {
    const Mark& m = marks_[i];
    if (m.stream != marks_[i + 1].stream) continue;
    float milliseconds = 0;
    check_cuda(cudaEventElapsedTime(&milliseconds, events_[i], events_[i + 1]), "cudaEventElapsedTime");
    Total& total = totals_[m.name];
    total.calls += 1;
    total.seconds += static_cast<double>(milliseconds) * 1e-3;
    total.bytes += m.bytes;
    total.flops += m.flops;
  }
  marks_.clear();
}

}  // namespace llmtrain
