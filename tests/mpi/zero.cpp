// SPDX-License-Identifier: Apache-2.0
// ranks: 2 3 4
/// ZeRO levels and their options on whole tiny models: what must not change a bit does not, what adds up in another
/// order stays within rounding, and a state saved at one level goes on at any other.
#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <deque>
#include <functional>
#include <optional>
#include <string>

#include "checkpoint_fixture.hpp"
#include "llmtrain/checkpoint/loader.hpp"
#include "llmtrain/checkpoint/saver.hpp"
#include "llmtrain/driver/state.hpp"
#include "llmtrain/parallel/groups.hpp"
#include "support/checked_flights.hpp"
#include "support/tiny_run.hpp"

using namespace llmtrain;

namespace {

std::vector<char> state_after(const Deck& deck, std::int64_t steps) {
  TinyRun run(deck);
  for (std::int64_t n = 1; n <= steps; ++n) run.step(n);
  return run.state();
}

/// Small enough a bound that even the norm weights are gathered at every use.
Deck with_zero(Deck deck, int zero) {
  deck.parallel.zero = zero;
  deck.parallel.persistence = 0;
  return deck;
}

/// This rank's counted part of the summed gradient.
std::vector<double> gradient_of(const Deck& deck) {
  TinyRun run(deck);
  run_gradients(run.parts, run.load, run.timers);
  std::vector<double> values;
  for (int i = 0; i < run.parts.shape.storages(); ++i) {
    for (const Span& span : run.parts.shape.counted(i)) {
      const double* const data = run.parts.grads.own_chunk(i).ptr<double>() + span.begin;
      values.insert(values.end(), data, data + span.count);
    }
  }
  return values;
}

/// Norm of a - b over all ranks, in parts of the norm of b.
double distance(const std::vector<double>& a, const std::vector<double>& b) {
  REQUIRE(a.size() == b.size());
  double sums[2] = {};
  for (std::size_t i = 0; i < a.size(); ++i) {
    sums[0] += (a[i] - b[i]) * (a[i] - b[i]);
    sums[1] += b[i] * b[i];
  }
  MpiComm::world().all_reduce(std::span<double>(sums), MpiOp::sum);
  return std::sqrt(sums[0] / sums[1]);
}

}  // namespace

TEST_CASE("one micro-batch, untied: all levels give the same bits") {
  for (const Compute compute : {Compute::fp64, Compute::fp32, Compute::bf16}) {
    CAPTURE(static_cast<int>(compute));
    const Deck deck = tiny_deck(tiny_llama(), compute, 0, 1);
    const std::vector<char> expected = state_after(deck, 3);
    for (const int zero : {1, 2, 3}) {
      CAPTURE(zero);
      CHECK(state_after(with_zero(deck, zero), 3) == expected);
    }
  }
}

TEST_CASE("several micro-batches or a tied weight: 0 equals 1, 2 equals 3, and these pairs differ by rounding alone") {
  for (const ModelConfig& model : {tiny_llama(), tiny_gpt()}) {
    const Deck deck = tiny_deck(model, Compute::fp64, 0, 3);
    for (const int zero : {0, 2}) {
      CAPTURE(zero);
      CHECK(state_after(with_zero(deck, zero), 2) == state_after(with_zero(deck, zero + 1), 2));
    }
    CHECK(distance(gradient_of(with_zero(deck, 3)), gradient_of(with_zero(deck, 0))) < 1e-14);
  }
}

TEST_CASE("prefetch, persistence, live limit, bucket and exchange change no bit; nothing is touched in flight") {
  const CheckedFlights checked;
  const Deck deck = with_zero(tiny_deck(tiny_gpt(), Compute::bf16, 3, 2), 3);
  const std::vector<char> expected = state_after(deck, 2);
  const std::vector<std::function<void(ParallelConfig&)>> changes{
      [](ParallelConfig& p) { p.prefetch = 0; },
      [](ParallelConfig& p) { p.prefetch = 1; },
      [](ParallelConfig& p) { p.prefetch = 40'000; },
      [](ParallelConfig& p) { p.persistence = 1'000; },
      [](ParallelConfig& p) { p.persistence = 1'000'000; },
      [](ParallelConfig& p) { p.max_live = 1; },
      [](ParallelConfig& p) { p.max_live = 60'000; },
      [](ParallelConfig& p) { p.bucket = 1; },
      [](ParallelConfig& p) { p.bucket = 10'000; },
      [](ParallelConfig& p) { p.exchange = 1; },
      [](ParallelConfig& p) { p.zero = 2; },
  };
  for (std::size_t i = 0; i < changes.size(); ++i) {
    CAPTURE(i);
    Deck changed = deck;
    changes[i](changed.parallel);
    CHECK(state_after(changed, 2) == expected);
  }
  for (const int zero : {0, 1}) {
    Deck whole = with_zero(deck, zero);
    const std::vector<char> uncut = state_after(whole, 2);
    whole.parallel.bucket = 999;
    whole.parallel.prefetch = 0;
    CHECK(state_after(whole, 2) == uncut);
  }
}

TEST_CASE("gradients that stay whole over the step add up as under ZeRO-1") {
  const CheckedFlights checked;
  Deck deck = tiny_deck(tiny_gpt(), Compute::fp32, 2, 1);
  deck.parallel.whole_gradients = {"head"};  // tied: with it the embedding, the only storage of two contributions
  CHECK(state_after(deck, 2) == state_after(with_zero(deck, 1), 2));
  deck.parallel.whole_gradients = {"embedding", "head"};
  CHECK(state_after(deck, 2) == state_after(with_zero(deck, 1), 2));
}

TEST_CASE("replicas of the shards") {
  const int ranks = MpiComm::world().size();
  for (const int shard : {1, 2}) {
    if (ranks % shard != 0) continue;
    CAPTURE(shard);
    for (const std::int64_t micro_batches : {1, 2}) {
      const CheckedFlights checked;
      Deck deck = with_zero(tiny_deck(tiny_llama(), Compute::fp64, 1, micro_batches), 1);
      const std::vector<double> expected = gradient_of(with_zero(deck, 0));
      deck.parallel.shard = shard;
      const std::vector<char> state = state_after(deck, 2);
      for (const int zero : {2, 3}) {
        CAPTURE(zero);
        const std::vector<char> other = state_after(with_zero(deck, zero), 2);
        if (micro_batches == 1) CHECK(other == state);
      }
      // Another cut into chunks: compare norms of the whole, and that replicas agree.
      TinyRun run(with_zero(deck, 3));
      run_gradients(run.parts, run.load, run.timers);
      double squares = 0;
      for (const double g : expected) squares += g * g;
      squares = MpiComm::world().all_reduce(squares, MpiOp::sum);
      CHECK(std::abs(run.parts.totals.ptr<double>()[2] - squares) <= 1e-13 * squares);
      run.step(1);
      for (const std::vector<char>& storage : run.weights()) {
        const std::vector<std::string> all = MpiComm::world().all_gather(std::string(storage.begin(), storage.end()));
        for (const std::string& other : all) CHECK(other == all[0]);
      }
    }
  }
}

TEST_CASE("evaluation is the same at every level, between steps too") {
  const Deck deck = tiny_deck(tiny_llama(), Compute::fp32, 0, 1);
  std::vector<double> expected;
  for (const int zero : {0, 1, 2, 3}) {
    TinyRun run(with_zero(deck, zero));
    std::vector<double> losses{run.evaluate()};
    for (std::int64_t n = 1; n <= 2; ++n) {
      run.step(n);
      losses.push_back(run.evaluate());
    }
    if (zero == 0) expected = losses;
    CHECK(losses == expected);
    CHECK(losses[1] != losses[0]);
  }
}

TEST_CASE("a state saved at any level goes on at any other with the same bits") {
  const MpiComm world = MpiComm::world();
  std::unique_ptr<checkpoint_test::Scratch> scratch;
  if (world.rank() == 0) scratch = std::make_unique<checkpoint_test::Scratch>();
  const std::filesystem::path path = world.broadcast(scratch ? scratch->path().string() : std::string(), 0);
  const Deck deck = tiny_deck(tiny_llama(), Compute::bf16, 0, 1);
  const std::vector<char> expected = state_after(deck, 3);
  for (const int zero : {0, 1, 2, 3}) {
    TinyRun run(with_zero(deck, zero));
    for (std::int64_t n = 1; n <= 2; ++n) run.step(n);
    StateMirror state(run.parts, StatePart::owned);
    state.download();
    save_checkpoint(world, path / std::to_string(zero), checkpoint_test::state_at(2), state.pieces(), {});
  }
  for (const int from : {0, 1, 2, 3}) {
    CAPTURE(from);
    const std::filesystem::path folder = path / std::to_string(from) / "step-00000002";
    CHECK(checkpoint_test::contents(folder) == checkpoint_test::contents(path / "0/step-00000002"));
    for (const int to : {0, 1, 2, 3}) {
      CAPTURE(to);
      TinyRun run(with_zero(deck, to));
      run.step(1);  // anything else
      StateMirror state(run.parts, StatePart::updated);
      load_checkpoint(world, open_checkpoint(world, folder), state.pieces());
      state.upload();
      run.step(3);
      CHECK(run.state() == expected);
    }
  }
  world.barrier();
}

namespace {

/// Accumulators of a made-up table on a tensor rank; every element of rank r starts as r + 1.
class HeldGradients {
 public:
  HeldGradients(const ParamTable& params, bool sequence, bool stages) : table(params) {
    const MpiComm world = MpiComm::world();
    const int ranks = world.size(), rank = world.rank();
    std::vector<int> all, pair{rank / 2 * 2, rank / 2 * 2 + 1};
    for (int r = 0; r < ranks; ++r) all.push_back(r);
    if (stages) {
      groups.tied = make(ranks, "tied", all);
    } else {
      shape =
          StoreShape(table, {.tensor_rank = rank, .tensor_size = ranks, .sequence = sequence, .shards = 1, .chunk = {}},
                     {}, StoreTypes{});
      groups.tensor = make(ranks, "tp", all);
      if (ranks == 4) groups.kv = make(2, "kv", pair);
    }
    grads.emplace(shape, LeaseSequence{0}, plan);
    arena.emplace(*device, plan);
    grads->bind(*arena, groups);
    grads->begin_step(stream);
    for (const Gradient& gradient : grads->open(0)) {
      for (std::int64_t i = 0; i < gradient.tensor.numel(); ++i) {
        gradient.tensor.ptr<float>()[i] = static_cast<float>(rank + 1);
      }
    }
    grads->commit(0, stream);
    grads->finish(stream);
  }

  const ParamTable table;
  const std::unique_ptr<Device> device = make_cpu_device(1);
  const Stream stream = device->make_stream("compute");
  StoreShape shape{table, {}, {}, {}};
  MemoryPlan plan;
  StoreGroups groups;
  std::optional<GradStore> grads;
  std::optional<Arena> arena;

 private:
  Communicator* make(int size, const char* name, const std::vector<int>& members) {
    std::vector<std::byte>& staging = staging_.emplace_back(static_cast<std::size_t>(64 * std::max(size, 4)));
    const Tensor workspace = Tensor::dense(staging.data(), DType::uint8, {std::ssize(staging)});
    const MpiComm world = MpiComm::world();
    made_.push_back(device->make_communicator(make_group(name, members, world.rank(), world), workspace));
    return made_.back().get();
  }
  std::deque<std::vector<std::byte>> staging_;
  std::vector<std::unique_ptr<Communicator>> made_;
};

Section section_of(const char* name, GradientOver over, SplitAxis split, std::int64_t units) {
  return {
      .name = name, .shape = {8}, .split = split, .init = {}, .units = units, .padded_rows = 0, .gradient_over = over};
}

}  // namespace

TEST_CASE("tensor ranks add up the sections that they hold in parts, and no others") {
  const int ranks = MpiComm::world().size(), rank = MpiComm::world().rank();
  const float own = static_cast<float>(rank + 1), all = static_cast<float>(ranks * (ranks + 1)) / 2;
  const std::int64_t units = ranks == 3 ? 1 : 2;  // of 2 ranks each has its own unit, of 4 two share one
  ParamTable table;
  table.storages = {
      {.name = "norm", .sections = {section_of("a", GradientOver::tokens, SplitAxis::none, 0)}},
      {.name = "qk_norm", .sections = {section_of("b", GradientOver::heads, SplitAxis::none, 0)}},
      {.name = "table", .sections = {section_of("c", GradientOver::whole, SplitAxis::none, 0)}},
      {.name = "kv",
       .sections = {section_of("q", GradientOver::whole, SplitAxis::none, 0),
                    section_of("k", GradientOver::heads, SplitAxis::rows, units)}},
  };
  table.leases = {{"all", {0, 1, 2, 3}}};
  for (const bool sequence : {false, true}) {
    const CheckedFlights checked;
    HeldGradients held(table, sequence, false);
    const auto value = [&](int storage, std::int64_t element) {
      return held.grads->flat(storage).ptr<float>()[element];
    };
    for (std::int64_t i : {0, 7}) {
      CHECK(value(0, i) == (sequence ? all : own));
      CHECK(value(1, i) == all);
      CHECK(value(2, i) == own);
      CHECK(value(3, i) == own);
    }
    const float pair = static_cast<float>(rank / 2 * 4 + 3);
    CHECK(value(3, 8) == (ranks == 2 ? own : ranks == 3 ? all : pair));
  }
}

TEST_CASE("the stages of a tied weight add up their gradients of it alone") {
  const int ranks = MpiComm::world().size(), rank = MpiComm::world().rank();
  ParamTable table;
  table.storages = {
      {.name = "embedding", .sections = {section_of("a", GradientOver::whole, SplitAxis::none, 0)}},
      {.name = "norm", .sections = {section_of("b", GradientOver::whole, SplitAxis::none, 0)}},
  };
  table.storages[0].tied = rank == 0 ? TiedCopy::first : TiedCopy::last;
  table.leases = {{"all", {0, 1}}};
  HeldGradients held(table, false, true);
  CHECK(held.grads->flat(0).ptr<float>()[7] == static_cast<float>(ranks * (ranks + 1)) / 2);
  CHECK(held.grads->flat(1).ptr<float>()[7] == static_cast<float>(rank + 1));
}
