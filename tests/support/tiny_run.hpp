// SPDX-License-Identifier: Apache-2.0
/// Whole tiny models over all ranks of the job, on made-up data.
#pragma once

#include <cstdint>
#include <vector>

#include "llmtrain/driver/dry_run.hpp"
#include "llmtrain/driver/step.hpp"
#include "support/gpt.hpp"
#include "support/random_batch.hpp"

namespace llmtrain {

inline ModelConfig tiny_llama() {
  ModelConfig config;
  config.layers = 2;
  config.hidden = 64;
  config.heads = 4;
  config.kv_heads = 2;
  config.head_dim = 16;
  config.ffn = 96;
  config.seq_len = 24;
  config.vocab = 61;
  config.vocab_multiple = 16;
  config.qkv_bias = true;
  config.qk_norm = true;
  config.dropout = 0.1;
  config.init_std = 0.1;
  return config;
}

inline ModelConfig tiny_gpt() { return as_gpt(tiny_llama()); }

/// Data-parallel, with micro-batches of two sequences.
inline Deck tiny_deck(const ModelConfig& model, Compute compute, int zero, std::int64_t micro_batches = 2) {
  Deck deck;
  deck.model = model;
  deck.parallel.zero = zero;
  deck.schedule.micro_batch = 2;
  deck.schedule.global_batch = 2 * micro_batches * MpiComm::world().size();
  deck.precision.compute = compute;
  return deck;
}

class TinyRun {
 public:
  explicit TinyRun(const Deck& tiny)
      : deck(tiny),
        topology(deck, world.size()),
        measured(measure(deck, topology, world.rank(), DeviceKind::cpu)),
        parts(deck, {topology, world.rank(), world}, *device, measured.scratch_bytes),
        load([this](std::int64_t m, const Batch& batch) {
          random_batch(batch, deck.model.vocab, 100 * world.rank() + m * deck.schedule.micro_batch);
        }) {
    parts.params.initialise(parts.kernels, parts.stream, 11);
  }
  void step(std::int64_t n) {
    run_step(parts, {.step = n, .lr = 1e-2, .beta1 = 0.9, .beta2 = 0.95, .clip = 1}, load, timers);
  }
  double evaluate() {
    run_evaluation(parts, 3, load);
    return parts.totals.ptr<double>()[0];
  }
  /// Bytes of totals, of this rank's chunks of masters and moments, and of all weights: the same at every ZeRO level.
  std::vector<char> state() {
    std::vector<char> bytes = bytes_of(parts.totals);
    const auto add = [&](const std::vector<char>& more) { bytes.insert(bytes.end(), more.begin(), more.end()); };
    for (int i = 0; i < parts.shape.storages(); ++i) {
      for (const Tensor& t : {parts.params.master(i), parts.optimizer.exp_avg(i), parts.optimizer.exp_avg_sq(i)}) {
        add(bytes_of(parts.shape.zero == 0 ? parts.shape.own_chunk(i, t) : t));
      }
    }
    for (const std::vector<char>& storage : weights()) add(storage);
    return bytes;
  }
  /// Bytes of every storage's weights, gathered, without the chunks' padding.
  std::vector<std::vector<char>> weights() {
    std::vector<std::vector<char>> bytes(static_cast<std::size_t>(parts.shape.storages()));
    for (const int lease : every_lease(parts.pieces)) {
      parts.params.begin_pass({lease}, parts.stream);
      const std::span<const Tensor> tensors = parts.params.acquire(lease, parts.stream);
      const std::vector<int>& storages = parts.shape.storages_of(lease);
      for (std::size_t i = 0; i < storages.size(); ++i) {
        bytes[static_cast<std::size_t>(storages[i])] = bytes_of(tensors[i]);
      }
      parts.params.release(lease, parts.stream);
    }
    return bytes;
  }

  const MpiComm world = MpiComm::world();
  const Deck deck;
  const std::unique_ptr<Device> device = make_cpu_device(1);
  const Topology topology;
  const Measured measured;
  Timers timers;
  Parts parts;
  const LoadBatch load;

 private:
  static std::vector<char> bytes_of(Tensor t) {
    const char* const data = static_cast<const char*>(t.data);
    return {data, data + t.bytes()};
  }
};

}  // namespace llmtrain
