// SPDX-License-Identifier: Apache-2.0
/// Memory and collectives of every ZeRO level by closed formulas, from the dry run of a step at eight ranks.
#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "llmtrain/backend/trace.hpp"
#include "llmtrain/driver/step.hpp"

using namespace llmtrain;

namespace {

constexpr int ranks = 8;
constexpr int micro_batches = 3;

Deck small_deck(int zero, Compute compute = Compute::fp32, bool tied = false) {
  Deck deck;
  deck.model.layers = 3;
  deck.model.hidden = 64;
  deck.model.heads = 4;
  deck.model.kv_heads = 2;
  deck.model.head_dim = 16;
  deck.model.ffn = 96;
  deck.model.seq_len = 32;
  deck.model.vocab = 257;
  deck.model.vocab_multiple = 16;
  deck.model.tied = tied;
  deck.schedule.micro_batch = 2;
  deck.schedule.global_batch = 2 * micro_batches * ranks;
  deck.parallel.zero = zero;
  deck.parallel.persistence = 0;
  deck.precision.compute = compute;
  return deck;
}

std::int64_t round_up(std::int64_t n, std::int64_t multiple) { return (n + multiple - 1) / multiple * multiple; }

/// The matrices and norm weights of the model as they are stored, by hand; elements with padding over `shards`.
struct Sizes {
  Sizes(const Deck& deck, int shards) {
    const auto add = [&](std::int64_t n) { return round_up(n, 128 * shards); };
    const std::int64_t block = add(64) + add(128 * 64) + add(64 * 64) + add(64) + add(192 * 64) + add(64 * 96);
    const std::int64_t vocabulary = add(272 * 64);
    leases = {vocabulary, block, block, block, add(64) + vocabulary};
    total = std::accumulate(leases.begin(), leases.end(), std::int64_t{0}) - (deck.model.tied ? vocabulary : 0);
  }
  std::vector<std::int64_t> leases;  ///< by lease
  std::int64_t total = 0;            ///< each storage once
};

constexpr std::array forward{0, 1, 2, 3, 4};
constexpr std::array step_of_one{0, 1, 2, 3, 4, 3, 2, 1};  // acquired
constexpr std::array opens_of_one{4, 3, 2, 1, 0};

/// The plan, and the collectives of the second step: the first one has nothing to gather that is stale.
struct Dry {
  explicit Dry(const Deck& deck) : topology(deck, ranks), parts(deck, {topology, 3, MpiComm{}}, *device, 0) {
    step();
    device->set_observer(&trace);
    step();
    device->set_observer(nullptr);
  }
  void step() {
    run_step(
        parts, StepInputs{}, [](std::int64_t, const Batch&) {}, timers);
  }
  TraceRecorder::CollectiveTotal total(const char* group, const char* operation) const {
    const auto found = trace.collectives().find({group, operation});
    return found == trace.collectives().end() ? TraceRecorder::CollectiveTotal{} : found->second;
  }
  std::int64_t row(const char* name) const {
    std::int64_t bytes = 0;
    for (const MemoryPlan::Row& r : parts.plan.rows()) bytes += r.name == name ? r.bytes : 0;
    return bytes;
  }

  const std::unique_ptr<Device> device = make_trace_device(DeviceKind::cpu);
  const Topology topology;
  Timers timers;
  Parts parts;
  TraceRecorder trace;
};

}  // namespace

TEST_CASE("static bytes: weights, gradients and state are divided as the table of ZeRO says, padding included") {
  struct Bytes {
    PrecisionConfig precision;
    std::int64_t weights, gradients, master, moments;  // of a parameter
  };
  constexpr Storage16 fp32 = Storage16::fp32, bf16 = Storage16::bf16;
  for (const Bytes& b : {Bytes{{Compute::bf16, fp32, fp32, fp32}, 2, 4, 4, 8},
                         {{Compute::bf16, bf16, fp32, fp32}, 2, 2, 4, 8},
                         {{Compute::bf16, bf16, bf16, bf16}, 2, 2, 4, 4},
                         {{Compute::fp32, fp32, fp32, fp32}, 4, 4, 0, 8},
                         {{Compute::fp64, fp32, fp32, fp32}, 8, 8, 0, 16}}) {
    for (const int shards : {8, 4}) {
      for (const int zero : {0, 1, 2, 3}) {
        CAPTURE(zero);
        Deck deck = small_deck(zero);
        deck.precision = b.precision;
        deck.parallel.shard = shards;
        const Dry dry(deck);
        const std::int64_t n = Sizes(deck, shards).total;
        const MemoryPlan& plan = dry.parts.plan;
        CHECK(plan.bytes(Segment::params) - dry.row("rope table") == b.weights * (zero < 3 ? n : n / shards));
        CHECK(plan.bytes(Segment::grads) == b.gradients * (zero < 2 ? n : n / shards));
        CHECK(plan.bytes(Segment::master) == b.master * (zero < 1 ? n : n / shards));
        CHECK(plan.bytes(Segment::moments) == b.moments * (zero < 1 ? n : n / shards));
      }
    }
  }
}

TEST_CASE("static bytes: what is small stays whole under ZeRO-3, and what is named keeps whole gradients") {
  Deck deck = small_deck(3);
  const std::int64_t n = Sizes(deck, ranks).total;
  const std::int64_t norm = round_up(64, 128 * ranks), o = round_up(64 * 64, 128 * ranks);
  deck.parallel.persistence = 64;
  CHECK(Dry(deck).row("final_norm") ==
        4 * (norm + norm / 8 + 2 * norm / 8));  // weights; gradient and moments in chunks
  deck.parallel.persistence = 64 * 64;
  const std::int64_t whole = 7 * norm + 3 * o;
  const Dry dry(deck);
  CHECK(dry.parts.plan.bytes(Segment::params) - dry.row("rope table") == 4 * (whole + (n - whole) / 8));
  deck.parallel.whole_gradients = {"head"};
  const std::int64_t head = Sizes(deck, ranks).leases[4];
  CHECK(Dry(deck).parts.plan.bytes(Segment::grads) == 4 * (head + (n - head) / 8));
}

TEST_CASE("the peak of ZeRO-3: the largest sum of a lease and those that its prefetch allows") {
  const Sizes sizes(small_deck(3), ranks);
  const auto lease = [&](int step) {
    return sizes.leases[static_cast<std::size_t>(step_of_one[static_cast<std::size_t>(step) % 8])];
  };
  for (const std::int64_t prefetch : {0, 1, 60'000, 100'000, 50'000'000}) {
    for (const std::int64_t max_live : {1, 64'000, 100'000, 1'000'000'000}) {
      CAPTURE(prefetch);
      CAPTURE(max_live);
      std::int64_t most = 0;
      int last = 0;
      for (int now = 0; now < 8 * micro_batches; ++now) {
        last = std::max(last, now);
        const auto sum = [&](int from, int to) {
          std::int64_t all = 0;
          for (int i = from; i <= to; ++i) all += lease(i);
          return all;
        };
        while (prefetch > 0 && last + 1 < 8 * micro_batches && sum(now, last + 1) <= max_live &&
               (last == now || sum(now + 1, last + 1) <= prefetch)) {
          ++last;
        }
        most = std::max(most, sum(now, last));
      }
      Deck deck = small_deck(3, Compute::bf16);
      deck.parallel.prefetch = prefetch;
      deck.parallel.max_live = max_live;
      const Dry dry(deck);
      CHECK(dry.row("gathered weights") == 2 * most);
      if (prefetch == 0) CHECK(most == sizes.leases[1]);
      // A block's gradient is on its way while the next one is computed.
      // Behind it there is room for the contributions of the other ranks to this rank's chunk.
      const std::int64_t gradients = std::max(2 * sizes.leases[1], sizes.leases[1] + sizes.leases[4]);
      CHECK(dry.row("gradients to reduce") == 4 * (gradients + gradients * (ranks - 1) / ranks));
    }
  }
}

TEST_CASE("collectives of a step by level: calls and bytes") {
  for (const bool tied : {false, true}) {
    for (const int shards : {8, 4}) {
      for (const auto& [zero, exchanges] :
           {std::pair{0, true}, {1, true}, {2, true}, {3, true}, {2, false}, {3, false}}) {
        CAPTURE(tied);
        CAPTURE(shards);
        CAPTURE(zero);
        CAPTURE(exchanges);
        Deck deck = small_deck(zero, Compute::bf16, tied);
        deck.parallel.shard = shards;
        if (!exchanges) deck.parallel.exchange = shards - 1;
        const Dry dry(deck);
        const Sizes sizes(deck, shards);
        const std::int64_t storages = 1 + 3 * 6 + (tied ? 1 : 2);
        const auto check = [&](const char* group, const char* operation, std::int64_t calls, std::int64_t bytes) {
          CAPTURE(group);
          CAPTURE(operation);
          CHECK(dry.total(group, operation).calls == calls);
          CHECK(dry.total(group, operation).bytes == bytes);
        };
        check("world", "all_reduce", 1, 32);
        check("data", "all_reduce", zero == 0 ? storages : 0, zero == 0 ? 4 * sizes.total : 0);
        // Reduced once, or at every commit, which a tied weight has two of.
        const auto leases = [&](const auto& order) {
          std::int64_t all = 0;
          for (const int i : order) all += sizes.leases[static_cast<std::size_t>(i)];
          return all;
        };
        const std::int64_t commits = zero < 2 ? storages : micro_batches * (2 + 3 * 6 + 1);
        const std::int64_t reduced = zero < 2 ? sizes.total : micro_batches * leases(opens_of_one);
        const bool scatters = zero == 1 || (zero > 1 && !exchanges);
        check("shard", "reduce_scatter", scatters ? commits : 0, scatters ? 4 * reduced : 0);
        const std::int64_t others = zero < 2 || scatters ? 0 : shards - 1;  // each gets its part
        check("shard", "shift", others * commits, 4 * reduced * others / shards);
        // Gathered once, or at every use: blocks in forward and backward.
        const std::int64_t uses = zero < 3 ? storages : micro_batches * (1 + 2 * 3 * 6 + 2);
        const std::int64_t gathered = zero < 3 ? sizes.total : micro_batches * leases(step_of_one);
        check("shard", "all_gather", zero == 0 ? 0 : uses, zero == 0 ? 0 : 2 * gathered);
        const bool replicas = zero > 0 && shards < ranks;
        check("replicate", "all_reduce", replicas ? storages : 0, replicas ? 4 * sizes.total / shards : 0);
        // What a lease moves goes out as one batch.
        std::map<std::string, std::int64_t> batches{{"world", 1}};
        if (zero == 0) batches["data"] = 5;
        if (zero > 0) batches["shard"] = (zero < 2 ? 5 : 5 * micro_batches) + (zero < 3 ? 5 : 8 * micro_batches);
        if (replicas) batches["replicate"] = 5;
        CHECK(dry.trace.batches() == batches);
      }
    }
  }
}

TEST_CASE("a bucket cuts all-reduces, and never what chunks need in one piece") {
  Deck deck = small_deck(0);
  deck.parallel.bucket = 10'000;
  const Sizes sizes(deck, ranks);
  const Dry cut(deck);
  CHECK(cut.total("data", "all_reduce").bytes == 4 * sizes.total);
  CHECK(cut.total("data", "all_reduce").calls > sizes.total / 10'000);
  deck.parallel.zero = 3;
  CHECK(Dry(deck).total("shard", "all_gather").calls == micro_batches * (1 + 2 * 3 * 6 + 2));
}

TEST_CASE("evaluation gathers each lease once a micro-batch under ZeRO-3, and what is stale once under ZeRO-1 and 2") {
  for (const int zero : {1, 2, 3}) {
    CAPTURE(zero);
    const Deck deck = small_deck(zero);
    Dry dry(deck);
    dry.trace.clear();
    dry.device->set_observer(&dry.trace);
    run_evaluation(dry.parts, 2, [](std::int64_t, const Batch&) {});
    dry.device->set_observer(nullptr);
    std::int64_t leases = 0;
    for (const int i : forward) leases += Sizes(deck, ranks).leases[static_cast<std::size_t>(i)];
    CHECK(dry.total("shard", "all_gather").bytes == 4 * leases * (zero == 3 ? 2 : 1));
  }
}
