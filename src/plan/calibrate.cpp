// SPDX-License-Identifier: Apache-2.0
/// Steps of small models measured operation by operation, and the constants fitted to them.
#include "llmtrain/plan/calibrate.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "fit.hpp"
#include "llmtrain/backend/workspace.hpp"
#include "llmtrain/driver/dry_run.hpp"
#include "llmtrain/driver/resolve.hpp"
#include "llmtrain/driver/step.hpp"
#include "llmtrain/parallel/groups.hpp"
#include "llmtrain/plan/layout.hpp"
#include "operation_timer.hpp"

namespace llmtrain {

namespace {

using Samples = std::vector<OperationTimer::Sample>;

/// A small model; the global batch is `micro_batches` micro-batches on every rank.
struct Model {
  const char* name;
  Family family;
  std::int64_t layers, hidden, heads, kv_heads, ffn, seq_len, vocab, micro_batch, micro_batches;
  Compute compute;
  int zero;
};

// What the constants are made from: from caches to main memory, short and long sequences, small and large heads.
constexpr std::array calibration_models{
    Model{"", Family::llama, 2, 128, 4, 2, 352, 64, 512, 4, 1, Compute::fp32, 0},
    Model{"", Family::llama, 2, 320, 5, 5, 864, 256, 2048, 2, 1, Compute::fp32, 0},
    Model{"", Family::gpt, 2, 256, 4, 4, 1024, 128, 1024, 4, 1, Compute::fp32, 0},
    Model{"", Family::llama, 2, 576, 9, 3, 1536, 128, 4096, 1, 1, Compute::fp32, 0},
    Model{"", Family::llama, 2, 192, 4, 2, 512, 768, 257, 1, 1, Compute::fp32, 0},
};

constexpr std::array check_models{
    Model{"llama 4 x 192, s 256", Family::llama, 4, 192, 6, 3, 512, 256, 257, 4, 1, Compute::fp32, 1},
    Model{"llama 4 x 192, s 256, 2 micro-batches", Family::llama, 4, 192, 6, 3, 512, 256, 257, 2, 2, Compute::fp32, 1},
    Model{"llama 3 x 256, s 64", Family::llama, 3, 256, 8, 4, 688, 64, 1000, 8, 1, Compute::fp32, 1},
    Model{"llama 2 x 512, s 128", Family::llama, 2, 512, 8, 8, 1376, 128, 2000, 2, 1, Compute::fp32, 1},
    Model{"llama 6 x 128, s 512", Family::llama, 6, 128, 4, 2, 344, 512, 512, 1, 1, Compute::fp32, 1},
    Model{"gpt 3 x 192, s 128", Family::gpt, 3, 192, 6, 6, 768, 128, 500, 4, 1, Compute::fp32, 1},
    Model{"gpt 2 x 384, s 256", Family::gpt, 2, 384, 6, 6, 1536, 256, 1024, 1, 1, Compute::fp32, 1},
    Model{"gpt 4 x 128, s 64", Family::gpt, 4, 128, 2, 2, 512, 64, 257, 8, 1, Compute::fp32, 1},
    Model{"llama 2 x 256, s 1024", Family::llama, 2, 256, 4, 2, 704, 1024, 2048, 1, 1, Compute::fp32, 1},
    Model{"llama 2 x 320, s 128, ZeRO-3", Family::llama, 2, 320, 5, 5, 864, 128, 1024, 4, 1, Compute::fp32, 3},
};

Deck deck_of(const Model& model, int ranks) {
  Deck deck;
  ModelConfig& m = deck.model;
  m.family = model.family;
  m.layers = model.layers;
  m.hidden = model.hidden;
  m.heads = model.heads;
  m.kv_heads = model.kv_heads;
  m.ffn = model.ffn;
  m.seq_len = model.seq_len;
  m.vocab = model.vocab;
  if (m.family == Family::gpt) {
    m.qkv_bias = true;
    m.activation = Activation::gelu_tanh;
    m.positions = Positions::learned;
  }
  deck.parallel.zero = model.zero;
  deck.parallel.persistence = 0;
  deck.schedule.micro_batch = model.micro_batch;
  deck.schedule.global_batch = model.micro_batch * model.micro_batches * ranks;
  deck.precision.compute = model.compute;
  return resolve(deck, model.vocab, DeviceKind::cpu);
}

/// Any tokens will do, if they differ.
void load_some(const Batch& batch, std::int64_t vocab) {
  std::vector<std::pair<std::int32_t, std::int32_t>> sorted;
  for (std::int64_t i = 0; i < batch.count(); ++i) {
    const auto id = static_cast<std::int32_t>(i * 7919 % vocab);
    batch.tokens.ptr<std::int32_t>()[i] = id;
    batch.targets.ptr<std::int32_t>()[i] = static_cast<std::int32_t>((id + 1) % vocab);
    batch.weights.ptr<float>()[i] = 1;
    batch.positions.ptr<std::int32_t>()[i] = static_cast<std::int32_t>(i % batch.sequence);
    sorted.emplace_back(id, static_cast<std::int32_t>(i));
  }
  std::sort(sorted.begin(), sorted.end());
  for (std::size_t i = 0; i < sorted.size(); ++i) batch.order.ptr<std::int32_t>()[i] = sorted[i].second;
}

/// Fastest times of a step's operations, over steps after the first, which touches memory for the first time.
Samples measure_steps(const Deck& deck, const Topology& topology, const MpiComm& world, Device& device, int repeats) {
  const int rank = world ? world.rank() : 0;
  const std::int64_t scratch = measure(deck, topology, rank, device.kind()).scratch_bytes;
  Parts parts(deck, {topology, rank, world}, device, scratch);
  parts.params.initialise(parts.kernels, parts.stream, 1);
  OperationTimer timer;
  Timers timers;
  const LoadBatch load = [&](std::int64_t, const Batch& batch) { load_some(batch, deck.model.vocab); };
  for (int step = 0; step <= repeats; ++step) {
    device.set_observer(step > 0 ? &timer : nullptr);
    if (step > 0) timer.begin_step();
    run_step(parts, {step + 1, 1e-5, 0.9, 0.95, 1.0}, load, timers);
    parts.stream.synchronize();
    if (step > 0) timer.end_step();
  }
  device.set_observer(nullptr);
  return timer.samples();
}

/// Keeps the fastest time of each place of equal steps.
void keep_fastest(Samples& samples, const Samples& more) {
  if (samples.empty()) samples = more;
  LLMTRAIN_CHECK(samples.size() == more.size());
  for (std::size_t i = 0; i < samples.size(); ++i) samples[i].seconds = std::min(samples[i].seconds, more[i].seconds);
}

/// Seconds that every rank needs at least and one needs at most: the mean of the ranks, as they wait for each other.
double seconds_of(const Samples& samples, const MpiComm& world) {
  double sum = 0;
  for (const auto& s : samples) sum += s.seconds;
  return world.all_reduce(sum, MpiOp::sum) / world.size();
}

void fit_products(const Samples& samples, Hardware& hardware) {
  std::vector<FitRow> rows;
  for (const auto& s : samples) {
    if (s.name != "gemm") continue;
    rows.push_back({{s.flops, s.flops * (1 / s.m + 1 / s.n), s.flops / s.k}, s.seconds - hardware.launch});
  }
  const std::vector<double> c = fit_relative(rows);
  hardware.gemm.rate.fp32 = 1 / c[0];
  hardware.gemm.rate.fp8 = 1 / c[0];  // widened to fp32
  hardware.gemm.side = c[1] / c[0];
  hardware.gemm.depth = c[2] / c[0];
}

void fit_attention(const Samples& samples, const char* name, double launch, AttentionModel& model) {
  std::vector<FitRow> rows;
  for (const auto& s : samples) {
    if (s.name == name) rows.push_back({{s.flops, s.flops / s.sequence, s.flops / s.head_dim}, s.seconds - launch});
  }
  const std::vector<double> c = fit_relative(rows);
  model.rate.fp32 = 1 / c[0];
  model.half = c[1] / c[0];
  model.head = c[2] / c[0];
}

/// Operations by the bytes they move, each with a share of the bandwidth of its own.
void fit_moves(const Samples& samples, Hardware& hardware) {
  std::map<std::string, std::array<double, 2>> sums;  // bytes, seconds
  for (const auto& s : samples) {
    if (s.flops > 0 || s.name.empty()) continue;
    sums[s.name][0] += s.bytes;
    sums[s.name][1] += std::max(s.seconds - hardware.launch, 1e-9);
    hardware.bandwidth = std::max(hardware.bandwidth, s.bytes / s.seconds);
  }
  double worst = 1;
  for (const auto& [name, sum] : sums) {
    hardware.efficiency[name] = sum[0] / sum[1] / hardware.bandwidth;
    worst = std::min(worst, hardware.efficiency[name]);
  }
  hardware.efficiency["default"] = worst;
}

/// Fastest of some all-reduces of so many numbers.
double all_reduce_seconds(Communicator& world, Device& device, Tensor data, int repeats) {
  const Stream stream = device.make_stream("collectives");
  double fastest = 1e9;
  for (int i = 0; i < repeats; ++i) {
    const Stopwatch watch;
    Communicator::Batch batch(world, stream.record());
    batch.all_reduce(data);
    stream.wait(batch.submit());
    stream.synchronize();
    fastest = std::min(fastest, watch.seconds());
  }
  return fastest;
}

void measure_link(const MpiComm& world, Device& device, int repeats, Hardware& hardware) {
  if (world.size() == 1) return;
  constexpr std::int64_t few = 256, many = 1 << 20;
  std::vector<int> members(static_cast<std::size_t>(world.size()));
  std::iota(members.begin(), members.end(), 0);
  const std::int64_t staging = communicator_workspace(device.kind(), world.size(), many * size_of(DType::fp32));
  MemoryPlan plan;
  const Slot data = plan.request(Segment::comm, "numbers", DType::fp32, {many});
  const Slot workspace = plan.request(Segment::comm, "staging", DType::uint8, {std::max<std::int64_t>(staging, 1)});
  const Arena arena(device, plan);
  const auto group = device.make_communicator(make_group("world", members, world.rank(), world), arena[workspace]);
  const double latency = all_reduce_seconds(*group, device, arena[data].flat(0, few), 20 * repeats);
  const double whole = all_reduce_seconds(*group, device, arena[data], 4 * repeats);
  const double doublings = std::ceil(std::log2(world.size()));
  hardware.inside.latency = world.all_reduce(latency, MpiOp::max) / doublings;
  hardware.inside.bandwidth = sent_bytes("all_reduce", static_cast<double>(arena[data].bytes()), world.size()) /
                              std::max(world.all_reduce(whole, MpiOp::max) - latency, 1e-9);
}

}  // namespace

Calibration calibrate(const MpiComm& world, Device& device, const std::string& name, int repeats) {
  LLMTRAIN_CHECK(device.kind() == DeviceKind::cpu);
  Calibration out;
  Hardware& h = out.hardware;
  h = find_hardware("cpu");
  h.name = name;
  h.source = fmt::format("llmtrain calibrate on {}, {} rank{}", device.describe(), world.size(),
                         world.size() > 1 ? "s at once" : "");
  h.efficiency.clear();
  h.bandwidth = 0;
  for (const DType dtype : {DType::bf16, DType::fp32, DType::fp64})
    h.peak.of(dtype) = device.peak_flops(dtype, nullptr);
  // A machine is now faster, now slower: all models take turns, so that each meets its best moments.
  constexpr int steps_a_turn = 2;
  std::array<Samples, calibration_models.size()> made_from;
  std::array<Samples, check_models.size()> checked;
  for (int turn = 0; turn * steps_a_turn < repeats; ++turn) {
    for (std::size_t i = 0; i < made_from.size(); ++i) {
      const Deck deck = deck_of(calibration_models[i], 1);
      keep_fastest(made_from[i], measure_steps(deck, Topology(deck, 1), {}, device, steps_a_turn));
    }
    for (std::size_t i = 0; i < checked.size(); ++i) {
      const Deck deck = deck_of(check_models[i], world.size());
      keep_fastest(checked[i], measure_steps(deck, Topology(deck, world.size()), world, device, steps_a_turn));
    }
  }
  Samples samples;
  for (const Samples& model : made_from) samples.insert(samples.end(), model.begin(), model.end());
  h.launch = 1e9;
  for (const auto& s : samples) h.launch = std::min(h.launch, s.seconds);
  fit_products(samples, h);
  fit_attention(samples, "attention_forward", h.launch, h.attention_forward);
  fit_attention(samples, "attention_backward", h.launch, h.attention_backward);
  fit_moves(samples, h);
  measure_link(world, device, repeats, h);
  for (std::size_t i = 0; i < checked.size(); ++i) {
    const Deck deck = deck_of(check_models[i], world.size());
    const double predicted = plan_layout(deck, world.size(), h, PlanDepth::rank).times.seconds;
    out.checks.push_back({check_models[i].name, world.size(), predicted, seconds_of(checked[i], world)});
  }
  return out;
}

}  // namespace llmtrain
