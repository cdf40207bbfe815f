// SPDX-License-Identifier: Apache-2.0
/// The dry run of a step: its memory plan is the real one to the byte, its FLOPs are the formula's, its collectives are
/// those of the ZeRO level.
#include <doctest/doctest.h>

#include "llmtrain/driver/dry_run.hpp"
#include "llmtrain/metrics/flops.hpp"

using namespace llmtrain;

namespace {

Deck small_deck(int zero) {
  Deck deck;
  deck.model.layers = 3;
  deck.model.hidden = 64;
  deck.model.heads = 4;
  deck.model.kv_heads = 2;
  deck.model.head_dim = 16;
  deck.model.ffn = 96;
  deck.model.seq_len = 32;
  deck.model.vocab = 256;
  deck.model.vocab_multiple = 16;
  deck.schedule.micro_batch = 2;
  deck.schedule.global_batch = 16;
  deck.parallel.zero = zero;
  deck.precision.compute = Compute::fp32;
  return deck;
}

std::int64_t padded_bytes(const Deck& deck, int shards) {
  std::int64_t elements = 0;
  for (const StorageSpec& storage : make_param_table(deck.model, 1).storages) {
    elements += layout_of(storage, 0, 1, shards).padded;
  }
  return elements * 4;
}

}  // namespace

TEST_CASE("the plan made without hardware is the plan that is allocated") {
  for (const ScheduleKind kind : {ScheduleKind::one_f_one_b, ScheduleKind::gpipe}) {
    Deck deck = small_deck(1);
    deck.schedule.kind = kind;
    const std::unique_ptr<Device> device = make_cpu_device(1);
    const Topology topology(deck, 1);
    const Measured measured = measure(deck, topology, 0, DeviceKind::cpu);
    const Parts parts(deck, {topology, 0, MpiComm{}}, *device, measured.scratch_bytes);
    for (int i = 0; i < segment_count; ++i) {
      CHECK(parts.plan.bytes(static_cast<Segment>(i)) == measured.plan.bytes(static_cast<Segment>(i)));
    }
    // GPipe keeps all eight micro-batches alive, 1F1B on one stage a single one.
    const std::int64_t activations = measured.plan.bytes(Segment::activations);
    deck.schedule.global_batch = 2;
    const std::int64_t of_one = measure(deck, topology, 0, DeviceKind::cpu).plan.bytes(Segment::activations);
    CHECK(activations == (kind == ScheduleKind::gpipe ? 8 : 1) * of_one);
  }
}

TEST_CASE("traced matrix products are 6 N a token, and attention is the causal half") {
  const Deck deck = small_deck(0);
  const Measured measured = measure(deck, Topology(deck, 2), 0, DeviceKind::cpu);
  const double tokens = static_cast<double>(deck.schedule.global_batch * deck.model.seq_len) / 2;
  CHECK(measured.trace.operations().at("gemm").flops == flops_per_token(deck.model).six_n * tokens);
  // Convention A counts s/2 visible tokens a query, the kernels exactly (s + 1)/2 and 2.5 forward costs backward.
  const double pairs = 8 * 32.0 * 33 / 2 * 3 * 4;  // sequences, pairs of tokens, layers, heads
  CHECK(measured.trace.operations().at("attention_forward").flops == 4 * 16 * pairs);
}

TEST_CASE("collectives of a step: one all-reduce, or one reduce-scatter and one all-gather, of every parameter") {
  using Key = std::pair<std::string, std::string>;
  for (const int zero : {0, 1}) {
    const Deck deck = small_deck(zero);
    const Measured measured = measure(deck, Topology(deck, 4), 1, DeviceKind::cpu);
    const auto& collectives = measured.trace.collectives();
    const std::int64_t bytes = padded_bytes(deck, 4);
    CHECK(collectives.at(Key("world", "all_reduce")).calls == 1);
    if (zero == 0) {
      CHECK(collectives.at(Key("data", "all_reduce")).bytes == bytes);
      CHECK(collectives.size() == 2);
    } else {
      CHECK(collectives.at(Key("shard", "reduce_scatter")).bytes == bytes);
      CHECK(collectives.at(Key("shard", "all_gather")).bytes == bytes);
      CHECK(collectives.size() == 3);
    }
  }
}

TEST_CASE("ZeRO-1 divides the optimizer's state by the number of ranks, padding included") {
  for (const int ranks : {1, 2, 4, 8}) {
    const Deck whole = small_deck(0), sharded = small_deck(1);
    const auto moments = [&](const Deck& deck) {
      return measure(deck, Topology(deck, ranks), 0, DeviceKind::cpu).plan.bytes(Segment::moments);
    };
    CHECK(moments(whole) == 2 * padded_bytes(whole, ranks));
    CHECK(moments(sharded) == 2 * padded_bytes(sharded, ranks) / ranks);
  }
}
