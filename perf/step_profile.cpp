// SPDX-License-Identifier: Apache-2.0
/// Where a training step's time goes on one CPU rank, by operation, and beside it what oneDNN takes for the step's
/// matrix products alone. Random tokens; prints Markdown for perf/records.
///   step_profile DECK [block.key=value ...]      run.steps counts the timed steps
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "cpu/gemm.hpp"
#include "llmtrain/base/clock.hpp"
#include "llmtrain/base/error.hpp"
#include "llmtrain/base/median.hpp"

#include "llmtrain/config/read.hpp"
#include "llmtrain/driver/dry_run.hpp"
#include "llmtrain/driver/resolve.hpp"
#include "llmtrain/driver/step.hpp"
#include "llmtrain/metrics/flops.hpp"
#include "llmtrain/tools/tool.hpp"
#include "support/random_batch.hpp"

namespace llmtrain {
namespace {

/// One kind of work in a step: an operation, for matrix products with its shape.
struct Work {
  std::string name;   ///< "gemm", "adamw"
  std::string shape;  ///< of a gemm: "nt 256 x 2304 x 768"
  bool operator<(const Work& other) const { return std::tie(name, shape) < std::tie(other.name, other.shape); }
};

/// Seconds, calls and work of one kind in one step.
struct Share {
  int calls = 0;
  double seconds = 0;
  double flops = 0;
  double bytes = 0;  ///< of all operands
};

struct Product {
  Work work;
  GemmForm form;
  GemmShape shape;
  Tensor d, a, b;
  Write write;
  double flops;
};

GemmForm form_of(const OpNote& note) {
  const std::string form = note.form;
  return form == "nn" ? GemmForm::nn : form == "nt" ? GemmForm::nt : GemmForm::tn;
}

/// Charges the time between the starts of two operations to the first: on the CPU they run at once, and what the host
/// does between them belongs to the step as well.
class Profile final : public OpObserver {
 public:
  void begin_step() {
    shares_.clear();
    products_.clear();
    current_ = &shares_[{"host", ""}];
    watch_.restart();
  }
  void end_step() { close(); }
  const std::map<Work, Share>& shares() const { return shares_; }
  const std::vector<Product>& products() const { return products_; }

  void on_operation(const OpNote& note) override {
    close();
    Work work{note.name, ""};
    if (work.name == "gemm") add_product(note, work);
    current_ = &shares_[work];
    ++current_->calls;
    current_->flops += note.flops;
    for (const Tensor& t : note.reads) current_->bytes += static_cast<double>(t.bytes());
    for (const Tensor& t : note.writes) current_->bytes += static_cast<double>(t.bytes());
    watch_.restart();
  }
  void on_batch(const BatchNote&) override {}

 private:
  void close() { current_->seconds += watch_.seconds(); }

  void add_product(const OpNote& note, Work& work) {
    const Tensor &d = note.writes[0], &a = note.reads[0], &b = note.reads[1];
    const GemmForm form = form_of(note);
    const GemmShape shape{d.rows(), d.cols(), form == GemmForm::tn ? a.rows() : a.cols()};
    const bool adds = note.reads.back().data == d.data;  // else that is b, or a bias
    work.shape = fmt::format("{} {} x {} x {}{}", note.form, shape.m, shape.n, shape.k, adds ? ", added" : "");
    products_.push_back({work, form, shape, d, a, b, adds ? Write::accumulate : Write::overwrite, note.flops});
  }

  std::map<Work, Share> shares_;
  std::vector<Product> products_;
  Share* current_ = nullptr;
  Stopwatch watch_;
};

/// The matrix products of a step again, in their order, by oneDNN on operands of their own: as many distinct ones as the
/// step has, so that the caches hold no more of them.
class Replay {
 public:
  /// Operands have the step's dtypes, or fp32 where the processor has no products of theirs.
  Replay(Device& device, std::vector<Product> products) : device_(device), products_(std::move(products)) {
    const bool widens = !has_bf16_products();
    std::map<void*, std::int64_t> bytes;
    const auto each = [&](auto&& body) {
      for (Product& p : products_)
        for (Tensor* t : {&p.d, &p.a, &p.b}) body(*t);
    };
    for (Product& p : products_) {
      if (widens || is_fp8(p.a.dtype)) p.d.dtype = p.a.dtype = p.b.dtype = DType::fp32;
    }
    each([&](Tensor& t) {
      std::int64_t& most = bytes[t.data];
      most = std::max(most, t.rows() * t.leading * size_of(t.dtype));
    });
    std::map<void*, void*> own;
    Kernels& kernels = device.kernels();
    const Stream stream = device.make_stream("operands");
    for (const auto& [data, size] : bytes) {
      void* const memory = device.allocate(size, MemorySpace::device);
      require(memory != nullptr, ExitCode::out_of_memory, "no memory for the operands of the step's matrix products");
      owned_.push_back(memory);
      own[data] = memory;
    }
    each([&](Tensor& t) {
      t.data = own.at(t.data);
      const Tensor whole = Tensor::dense(t.data, t.dtype, {t.rows(), t.leading});
      kernels.init_normal(stream, whole, {1, 1}, {0, 0, whole.cols()}, 1e-2);
    });
  }
  ~Replay() {
    for (void* memory : owned_) device_.release(memory, MemorySpace::device);
  }
  Replay(const Replay&) = delete;
  Replay& operator=(const Replay&) = delete;

  /// Seconds by kind; returns the seconds of all.
  double run(std::map<Work, Share>& shares) const {
    shares.clear();
    const Stopwatch all;
    for (const Product& p : products_) {
      const Stopwatch watch;
      gemm_dnnl(p.form, p.shape, p.d, p.a, p.b, p.write);
      Share& share = shares[p.work];
      ++share.calls;
      share.seconds += watch.seconds();
      share.flops += p.flops;
    }
    return all.seconds();
  }

 private:
  Device& device_;
  std::vector<Product> products_;
  std::vector<void*> owned_;
};

/// What was measured, a value a step.
struct Series {
  std::map<Work, std::vector<double>> step, alone;
  std::map<Work, Share> last;  ///< calls, FLOPs and bytes, which do not change
  std::vector<double> step_seconds, alone_seconds, fraction;
};

void collect(std::map<Work, std::vector<double>>& into, const std::map<Work, Share>& shares) {
  for (const auto& [work, share] : shares) into[work].push_back(share.seconds);
}

Series measure_steps(Parts& parts, std::int64_t steps) {
  constexpr std::int64_t warmup = 2;
  Series series;
  Profile profile;
  Timers timers;
  std::unique_ptr<Replay> replay;
  const auto load = [&](std::int64_t micro, const Batch& batch) {
    random_batch(batch, parts.deck.model.vocab, 1 + micro * batch.batch);
  };
  for (std::int64_t n = 1; n <= warmup + steps; ++n) {
    parts.device.set_observer(&profile);
    profile.begin_step();
    const Stopwatch watch;
    run_step(parts, {n, 1e-5, 0.9, 0.95, 1.0}, load, timers);
    const double step = watch.seconds();
    profile.end_step();
    parts.device.set_observer(nullptr);
    if (replay == nullptr) replay = std::make_unique<Replay>(parts.device, profile.products());
    std::map<Work, Share> shares;
    const double alone = replay->run(shares);
    if (n <= warmup) continue;
    collect(series.step, profile.shares());
    collect(series.alone, shares);
    series.last = profile.shares();
    series.step_seconds.push_back(step);
    series.alone_seconds.push_back(alone);
    series.fraction.push_back(alone / step);
  }
  return series;
}

/// Bytes a second of a copy that no cache holds, read and write counted: what memory-bound operations can reach.
double copy_bandwidth(Device& device) {
  constexpr std::int64_t bytes = std::int64_t{256} << 20;
  const Stream stream = device.make_stream("copy");
  void* const from = device.allocate(bytes, MemorySpace::device);
  void* const to = device.allocate(bytes, MemorySpace::device);
  std::vector<double> seconds;
  for (int i = 0; i < 7 && from != nullptr && to != nullptr; ++i) {
    const Stopwatch watch;
    device.kernels().copy(stream, Tensor::dense(to, DType::uint8, {bytes}), Tensor::dense(from, DType::uint8, {bytes}));
    seconds.push_back(watch.seconds());
  }
  for (void* memory : {from, to}) {
    if (memory != nullptr) device.release(memory, MemorySpace::device);
  }
  return seconds.empty() ? 0 : 2.0 * static_cast<double>(bytes) / median(seconds);
}

void print_summary(const Parts& parts, const Series& s) {
  const Deck& deck = parts.deck;
  const double tokens = static_cast<double>(deck.schedule.global_batch * deck.model.seq_len);
  const double step = median(s.step_seconds);
  const FlopsPerToken flops = flops_per_token(deck.model);
  std::string formula;
  const DType data = deck.precision.compute == Compute::fp32 ? DType::fp32 : DType::bf16;
  const double peak = parts.device.peak_flops(data, &formula);
  fmt::print("- device: {}; copy {:.1f} GB/s\n", parts.device.describe(), copy_bandwidth(parts.device) / 1e9);
  fmt::print("- step of {} tokens: {:.1f} ms (median of {}, fastest {:.1f}), {:.0f} tokens/s\n", tokens, 1e3 * step,
             s.step_seconds.size(), 1e3 * *std::min_element(s.step_seconds.begin(), s.step_seconds.end()),
             tokens / step);
  fmt::print("- {:.1f} GFLOP/s by 6 N + 6 L d s (convention A), {:.1f} by 6 N + 12 L d s (B)",
             flops.causal * tokens / step / 1e9, flops.full * tokens / step / 1e9);
  if (peak > 0) fmt::print("; MFU {:.1f} % of {}", 100 * flops.causal * tokens / step / peak, formula);
  fmt::print(
      "\n- oneDNN's matrix products of the step alone{}: {:.1f} ms, **{:.1f} % of the step** (median of the "
      "ratios of neighbouring steps)\n\n",
      data == DType::bf16 && !has_bf16_products() ? ", in fp32" : "", 1e3 * median(s.alone_seconds),
      100 * median(s.fraction));
}

void print_operations(const Series& s) {
  struct Row {
    int calls = 0;
    double seconds = 0, bytes = 0, flops = 0, alone = 0;
  };
  std::map<std::string, Row> rows;
  for (const auto& [work, share] : s.last) {
    Row& row = rows[work.name];
    row.calls += share.calls;
    row.bytes += share.bytes;
    row.flops += share.flops;
    row.seconds += median(s.step.at(work));
    const auto alone = s.alone.find(work);
    if (alone != s.alone.end()) row.alone += median(alone->second);
  }
  std::vector<std::pair<std::string, Row>> sorted(rows.begin(), rows.end());
  std::sort(sorted.begin(), sorted.end(),
            [](const auto& x, const auto& y) { return x.second.seconds > y.second.seconds; });
  const double step = median(s.step_seconds);
  fmt::print("| operation | calls | ms | share of step | GFLOP/s | GB/s of operands | oneDNN alone, ms |\n");
  fmt::print("|---|--:|--:|--:|--:|--:|--:|\n");
  for (const auto& [name, row] : sorted) {
    const bool gathers = name.starts_with("embedding");  // touches few rows of the table it names
    fmt::print("| {} | {} | {:.2f} | {:.1f} % | {} | {} | {} |\n", name, row.calls, 1e3 * row.seconds,
               100 * row.seconds / step, row.flops > 0 ? fmt::format("{:.0f}", row.flops / row.seconds / 1e9) : "",
               row.flops > 0 || gathers || row.bytes == 0 ? "" : fmt::format("{:.1f}", row.bytes / row.seconds / 1e9),
               row.alone > 0 ? fmt::format("{:.2f}", 1e3 * row.alone) : "");
  }
}

void print_products(const Series& s) {
  fmt::print(
      "\n| product, m x n x k | calls | ms | GFLOP/s | oneDNN alone, ms | GFLOP/s |\n|---|--:|--:|--:|--:|--:|\n");
  for (const auto& [work, share] : s.last) {
    const auto alone = s.alone.find(work);
    if (alone == s.alone.end()) continue;
    const double in_step = median(s.step.at(work)), by_itself = median(alone->second);
    fmt::print("| {} | {} | {:.2f} | {:.0f} | {:.2f} | {:.0f} |\n", work.shape, share.calls, 1e3 * in_step,
               share.flops / in_step / 1e9, 1e3 * by_itself, share.flops / by_itself / 1e9);
  }
}

void profile_deck(const std::vector<std::string>& arguments) {
  require(!arguments.empty(), ExitCode::usage, "usage: step_profile DECK [block.key=value ...]");
  const std::vector<std::string> overrides(arguments.begin() + 1, arguments.end());
  const Deck deck = resolve(read_deck(arguments[0], overrides, {.ranks = 1}), 257, DeviceKind::cpu);
  require(deck.precision.compute != Compute::fp64, ExitCode::configuration,
          "precision.compute fp64: oneDNN has no products of it to compare with; set fp32 or bf16");
  const Topology topology(deck, 1);
  const std::unique_ptr<Device> device = make_cpu_device(thread_count(deck.run.threads, MpiComm{}));
  Parts parts(deck, {topology, 0, MpiComm{}}, *device, measure(deck, topology, 0, DeviceKind::cpu).scratch_bytes);
  parts.params.initialise(parts.kernels, parts.stream, static_cast<std::uint64_t>(deck.run.seed));
  const Series series = measure_steps(parts, deck.run.steps);
  print_summary(parts, series);
  print_operations(series);
  print_products(series);
}

}  // namespace
}  // namespace llmtrain

int main(int argc, char** argv) {
  try {
    llmtrain::profile_deck({argv + 1, argv + argc});
    return 0;
  } catch (const llmtrain::Error& error) {
    std::fputs(llmtrain::error_text(error).c_str(), stderr);
    return static_cast<int>(error.code());
  }
}
