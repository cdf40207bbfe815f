// SPDX-License-Identifier: Apache-2.0
// ranks: 1 2
/// Exposed communication: a rank that waits for a slow one says so, on the axis on which it waits; a rank alone never waits.
#include <doctest/doctest.h>

#include <chrono>
#include <thread>

#include "llmtrain/parallel/exposed.hpp"
#include "support/tiny_run.hpp"

using namespace llmtrain;

namespace {

/// Of a step in which the last rank is late with its data; again, and later, while the first one was later than that and did
/// not wait on that axis: a rank may be stopped for any time.
Exposed exposed_of(const Deck& deck, double Exposed::*axis) {
  TinyRun run(deck);
  const bool late = run.world.size() > 1 && run.world.rank() == run.world.size() - 1;
  Exposed exposed;
  for (std::int64_t step = 1; step <= 8; ++step) {
    const LoadBatch load = [&](std::int64_t micro, Batch& batch) {
      if (late) std::this_thread::sleep_for(std::chrono::milliseconds(50 * step));
      run.load(micro, batch);
    };
    run.world.barrier();
    run_step(run.parts, {.step = step, .lr = 1e-2, .beta1 = 0.9, .beta2 = 0.95, .clip = 1}, load, run.timers);
    run.parts.stream.synchronize();
    exposed = by_axis(run.device->take_exposed());
    const std::int64_t waited = run.world.rank() == 0 && exposed.*axis > 0;
    if (run.world.all_reduce(waited, MpiOp::max) > 0) break;
  }
  return exposed;
}

}  // namespace

TEST_CASE("the ranks of every axis wait for the slow one, and only there and at the end of the step") {
  const int ranks = MpiComm::world().size();
  const bool first = MpiComm::world().rank() == 0;
  const auto check = [&](const Deck& deck, double Exposed::*axis) {
    const Exposed exposed = exposed_of(deck, axis);
    CHECK(exposed.total() >= exposed.*axis);
    if (ranks == 1) CHECK(exposed.total() == 0);
    if (ranks > 1 && first) CHECK(exposed.*axis > 0);
    for (double Exposed::*other : {&Exposed::tensor, &Exposed::pipeline, &Exposed::data}) {
      if (other != axis) CHECK(exposed.*other == 0);
    }
  };
  for (const int zero : {0, 1, 2, 3}) {
    CAPTURE(zero);
    Deck deck = tiny_deck(tiny_llama(), Compute::fp32, zero);
    deck.parallel.persistence = 0;
    check(deck, &Exposed::data);
  }
  Deck tensor = tiny_deck(tiny_llama(), Compute::fp32, 0);
  tensor.parallel.tensor = ranks;
  check(tensor, &Exposed::tensor);
  Deck pipeline = tiny_deck(tiny_llama(), Compute::fp32, 0);
  pipeline.parallel.pipeline = ranks;
  check(pipeline, &Exposed::pipeline);
}

TEST_CASE("every group of a run has its axis, and no other has") {
  Exposed exposed;
  for (const char* group : {"tensor", "kv"}) exposed.add(group, 1);
  for (const char* group : {"pp-forward", "pp-backward", "tied"}) exposed.add(group, 10);
  for (const char* group : {"data", "shard", "replicate"}) exposed.add(group, 100);
  exposed.add("world", 1000);
  CHECK(exposed.tensor == 2);
  CHECK(exposed.pipeline == 30);
  CHECK(exposed.data == 300);
  CHECK(exposed.world == 1000);
  CHECK(exposed.total() == 1332);
  CHECK_THROWS_AS(exposed.add("shards", 1), Error);
}
