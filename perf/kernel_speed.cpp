// SPDX-License-Identifier: Apache-2.0
/// Rates of the device's operations at the shapes of real models, one by one, beside a copy measured in the same run. The
/// operations are those that the trace back end reports for a step of each model, so that their times, added up, are the
/// roof of its step: what the same kernels would take without host, gaps and communication. Prints Markdown.
///   kernel_speed [--cpu] [--models NAME,...] [--only NAME,...] [block.key=value ...]
/// NAME is a part of a model's or an operation's name; keys change all models.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "kernel_calls.hpp"
#include "llmtrain/backend/kernels.hpp"
#include "llmtrain/backend/workspace.hpp"
#include "llmtrain/base/clock.hpp"
#include "llmtrain/base/error.hpp"
#include "llmtrain/base/median.hpp"
#include "llmtrain/config/read.hpp"
#include "llmtrain/driver/dry_run.hpp"
#include "llmtrain/driver/micro_batches.hpp"
#include "llmtrain/driver/resolve.hpp"
#include "llmtrain/metrics/flops.hpp"
#include "llmtrain/tools/tool.hpp"

namespace llmtrain {
namespace {

/// A model and the batch that peers are measured with.
struct Row {
  const char* name;
  const char* deck;
};
constexpr Row rows[] = {
    {"gpt2-124m", "{model: {preset: gpt2-124m}, schedule: {micro_batch: 64, global_batch: 512}}"},
    {"gpt2-1.5b", "{model: {preset: gpt2-1.5b}, schedule: {micro_batch: 16, global_batch: 256}}"},
    {"qwen2.5-1.5b", "{model: {preset: qwen2.5-1.5b, seq_len: 1024}, schedule: {micro_batch: 16, global_batch: 256}}"},
    {"qwen2.5-3b", "{model: {preset: qwen2.5-3b, seq_len: 1024}, schedule: {micro_batch: 16, global_batch: 128}}"},
    {"qwen2.5-7b", "{model: {preset: qwen2.5-7b, seq_len: 1024}, schedule: {micro_batch: 8, global_batch: 64}}"},
    {"llama3.2-1b", "{model: {preset: llama3.2-1b, seq_len: 8192}, schedule: {micro_batch: 2, global_batch: 8}}"},
    {"llama3.2-3b", "{model: {preset: llama3.2-3b, seq_len: 8192}, schedule: {micro_batch: 1, global_batch: 4}}"},
    {"llama3-8b-8",
     "{model: {preset: llama3-8b, layers: 8, seq_len: 8192}, schedule: {micro_batch: 1, global_batch: 4}}"},
};

/// Enough of a queue that its beginning and end do not count, and operands enough that no cache serves them.
struct Effort {
  double queue_seconds, rotated_bytes;
  int goes;
  std::int64_t copied_bytes;
};
Effort effort_of(DeviceKind kind) {
  return kind == DeviceKind::cuda ? Effort{4e-3, 0x1p28, 7, std::int64_t{1} << 30}
                                  : Effort{2e-2, 0x1p26, 3, std::int64_t{1} << 27};
}

/// Seconds of a call: the median of several queues of calls, each between two waits of the host.
double seconds_of(Device& device, Stream stream, const Caller& caller, const Operation& operation) {
  const Effort effort = effort_of(device.kind());
  std::vector<std::unique_ptr<Operands>> sets;
  const auto count = static_cast<std::size_t>(
      std::clamp(std::ceil(effort.rotated_bytes / std::max(Operands::bytes_of(operation), 1.0)), 1.0, 32.0));
  for (std::size_t i = 0; i < count; ++i) {
    sets.push_back(std::make_unique<Operands>(device, stream, operation, i + 1));
    caller.prepare(operation, *sets.back());
  }
  std::size_t next = 0;
  const auto queue = [&](int calls) {
    const Stopwatch watch;
    for (int i = 0; i < calls; ++i) caller.call(operation, *sets[next++ % sets.size()]);
    stream.synchronize();
    return watch.seconds();
  };
  queue(1);  // where algorithms are chosen
  const int few = static_cast<int>(count);
  const double about = std::min(queue(few), queue(few)) / few;
  const int calls = static_cast<int>(std::clamp(std::ceil(effort.queue_seconds / about), 1.0, 1000.0));
  std::vector<double> goes;
  for (int go = 0; go < effort.goes; ++go) goes.push_back(queue(calls) / calls);
  return median(std::move(goes));
}

/// Memory-bound operations that no step above has, at the size of GPT-2's residual stream.
void issue_others(Device& trace, Stream stream, DeviceKind kind) {
  Kernels& kernels = trace.kernels();
  const std::int64_t tokens = kind == DeviceKind::cuda ? 65536 : 4096, hidden = 768, n = tokens * hidden;
  const auto make = [&](DType dtype, std::initializer_list<std::int64_t> shape) {
    const Tensor t = Tensor::dense(nullptr, dtype, shape);
    return Tensor::dense(trace.allocate(t.bytes(), MemorySpace::device), dtype, shape);
  };
  const auto matrix = [&](DType dtype) { return make(dtype, {tokens, hidden}); };
  const DType bf16 = DType::bf16, fp32 = DType::fp32;
  kernels.convert(stream, matrix(bf16), matrix(fp32));
  kernels.convert(stream, matrix(fp32), matrix(bf16));
  kernels.copy(stream, matrix(bf16), matrix(bf16));
  kernels.fill(stream, matrix(bf16), 0);
  kernels.add(stream, matrix(bf16), matrix(bf16), matrix(bf16));
  const Tensor parts[] = {make(bf16, {n}), make(bf16, {n})};
  kernels.sum_parts(stream, make(bf16, {n}), parts);
  kernels.bias_add(stream, matrix(bf16), matrix(bf16), make(bf16, {hidden}));
  const DropoutKey key{.probability = 0.1, .sequence = tokens / 64};
  const Tensor samples = make(DType::int64, {64});
  kernels.bias_dropout(stream, matrix(bf16), matrix(bf16), make(bf16, {hidden}), samples, key);
  kernels.dropout_backward(stream, matrix(bf16), matrix(bf16), samples, key);
  const Tensor totals = make(DType::fp64, {step_totals_size}), scalars = make(DType::fp64, {step_scalars_size});
  kernels.sum_squares(stream, totals, make(bf16, {n}));
  for (const DType moments : {fp32, bf16}) {
    for (const DType gradient : {fp32, bf16}) {
      kernels.adamw(stream, make(fp32, {n}), make(moments, {n}), make(moments, {n}), make(bf16, {n}),
                    make(gradient, {n}), scalars, {});
    }
  }
}

struct Request {
  bool cpu = false;
  std::vector<std::string> models, only, overrides;
};

std::vector<std::string> split(const std::string& list) {
  std::vector<std::string> parts(1);
  for (const char c : list) {
    if (c == ',') {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  return parts;
}

Request parse(const std::vector<std::string>& arguments) {
  Request request;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string& word = arguments[i];
    const bool more = i + 1 < arguments.size();
    if (word == "--cpu") {
      request.cpu = true;
    } else if (word == "--models" && more) {
      request.models = split(arguments[++i]);
    } else if (word == "--only" && more) {
      request.only = split(arguments[++i]);
    } else {
      require(word.find('=') != std::string::npos, ExitCode::usage,
              "usage: kernel_speed [--cpu] [--models NAME,...] [--only NAME,...] [block.key=value ...]");
      request.overrides.push_back(word);
    }
  }
  return request;
}

bool is_wanted(const std::vector<std::string>& parts, const std::string& name) {
  return parts.empty() || std::any_of(parts.begin(), parts.end(),
                                      [&](const std::string& part) { return name.find(part) != std::string::npos; });
}

/// One device, its copy's bandwidth, and tables beside it.
class Measurement {
 public:
  explicit Measurement(Request request)
      : request_(std::move(request)),
        device_(request_.cpu ? make_cpu_device(thread_count(0, MpiComm{})) : make_cuda_device({})),
        stream_(device_->make_stream("kernels")) {
    const std::int64_t workspace = std::max<std::int64_t>(kernels_workspace(device_->kind()), 1);
    workspace_ = device_->allocate(workspace, MemorySpace::device);
    device_->kernels().use_workspace(Tensor::dense(workspace_, DType::uint8, {workspace}));
    const std::int64_t n = effort_of(device_->kind()).copied_bytes / size_of(DType::fp32);
    const std::unique_ptr<Device> trace = make_trace_device(device_->kind());
    Operations copy;
    trace->set_observer(&copy);
    const auto make = [&] { return Tensor::dense(trace->allocate(4 * n, MemorySpace::device), DType::fp32, {n}); };
    trace->kernels().copy(trace->make_stream("copy"), make(), make());
    const Deck none;
    const Operation& operation = copy.list()[0];
    copy_rate_ = operation.bytes / seconds_of(*device_, stream_, Caller(*device_, stream_, none), operation);
    fmt::print("- device: {}; copy of {} MiB: {:.3f} TB/s, read and written\n", device_->describe(), (4 * n) >> 20,
               copy_rate_ / 1e12);
  }
  ~Measurement() { device_->release(workspace_, MemorySpace::device); }
  Measurement(const Measurement&) = delete;
  Measurement& operator=(const Measurement&) = delete;

  void all() {
    for (const Row& row : rows) {
      if (is_wanted(request_.models, row.name)) model(row);
    }
    if (is_wanted(request_.models, "others")) others();
  }

 private:
  Deck deck_of(const Row& row) const {
    std::vector<std::string> overrides{"precision.compute=bf16"};
    overrides.insert(overrides.end(), request_.overrides.begin(), request_.overrides.end());
    return resolve(parse_deck(row.deck, row.name, overrides, {.ranks = 1}), 257, device_->kind());
  }

  void model(const Row& row) const {
    const Deck deck = deck_of(row);
    const Topology topology(deck, 1);
    Operations step;
    DryRank(deck, topology, 0, device_->kind(), micro_batches_of(deck, topology)).step(step);
    const double seconds = table(row.name, deck, step.list());
    if (!request_.only.empty()) return;
    const double tokens = static_cast<double>(deck.schedule.global_batch * deck.model.seq_len);
    fmt::print("\nsum: {:.1f} ms a step of {:.0f} tokens: {:.0f} tokens/s, {:.1f} TFLOP/s by 6 N + 6 L d s\n",
               1e3 * seconds, tokens, tokens / seconds, flops_per_token(deck.model).causal * tokens / seconds / 1e12);
  }

  void others() const {
    const std::unique_ptr<Device> trace = make_trace_device(device_->kind());
    Operations operations;
    trace->set_observer(&operations);
    issue_others(*trace, trace->make_stream("others"), device_->kind());
    const Deck deck = parse_deck("{model: {preset: gpt2-124m}}", "others");
    table("others", deck, operations.list());
  }

  /// Returns the seconds of all calls.
  double table(const char* name, const Deck& deck, std::vector<Operation>& operations) const {
    struct Line {
      double seconds;
      std::string text;
    };
    const Caller caller(*device_, stream_, deck);
    std::vector<Line> lines;
    double all = 0;
    for (const Operation& operation : operations) {
      if (!is_wanted(request_.only, operation.name)) continue;
      require(caller.knows(operation), ExitCode::internal, "kernel_speed cannot call {}", operation.name);
      const double each = seconds_of(*device_, stream_, caller, operation);
      const double seconds = static_cast<double>(operation.calls) * each;
      all += seconds;
      const std::string rate = operation.flops > 0 ? fmt::format("| | | {:.0f} |", operation.flops / each / 1e12)
                                                   : fmt::format("| {:.3f} | {:.1f} | |", operation.bytes / each / 1e12,
                                                                 100 * operation.bytes / each / copy_rate_);
      lines.push_back(
          {seconds, fmt::format("| {} | {} | {} | {:.1f} | {:.1f} | {:.2f} {}", operation.name, operation.shape(),
                                operation.calls, 1e6 * each, operation.bytes / 1e6, 1e3 * seconds, rate)});
    }
    std::stable_sort(lines.begin(), lines.end(), [](const Line& a, const Line& b) { return a.seconds > b.seconds; });
    fmt::print("\n{}\n\n| operation | on | calls a step | us | MB | ms a step | TB/s | % of copy | TFLOP/s |\n", name);
    fmt::print("|---|---|--:|--:|--:|--:|--:|--:|--:|\n");
    for (const Line& line : lines) fmt::print("{}\n", line.text);
    std::fflush(stdout);
    return all;
  }

  const Request request_;
  const std::unique_ptr<Device> device_;
  const Stream stream_;
  void* workspace_ = nullptr;
  double copy_rate_ = 0;
};

}  // namespace
}  // namespace llmtrain

int main(int argc, char** argv) {
  try {
    llmtrain::Measurement(llmtrain::parse({argv + 1, argv + argc})).all();
    return 0;
  } catch (const llmtrain::Error& error) {
    std::fputs(llmtrain::error_text(error).c_str(), stderr);
    return static_cast<int>(error.code());
  }
}
