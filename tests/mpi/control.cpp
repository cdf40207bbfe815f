// SPDX-License-Identifier: Apache-2.0
// ranks: 1 2 4
/// What ranks agree on at step boundaries: a maximum in two halves, one rank's stop signal, rank 0's clock.
#include "llmtrain/driver/control.hpp"

#include <doctest/doctest.h>
#include <signal.h>

#include <array>
#include <stdexcept>

#include "llmtrain/base/signals.hpp"

using namespace llmtrain;

TEST_CASE("a maximum in two halves, again and again") {
  const MpiComm world = MpiComm::world();
  MpiMaximum maximum(world, 3);
  for (std::int64_t round = 0; round < 5; ++round) {
    const std::int64_t rank = world.rank();
    maximum.post(std::array<std::int64_t, 3>{rank, -rank, round * (rank + 1)});
    world.barrier();  // another communicator's traffic in between
    const auto all = maximum.read();
    CHECK(all[0] == world.size() - 1);
    CHECK(all[1] == 0);
    CHECK(all[2] == round * world.size());
  }
}

TEST_CASE("what was posted and is not read holds up nobody") {
  const MpiComm world = MpiComm::world();
  {
    MpiMaximum maximum(world, 1);
    maximum.post(std::array<std::int64_t, 1>{1});
  }
  const auto left_by_exception = [&] {
    MpiMaximum maximum(world, 1);
    if (world.rank() > 0 || world.size() == 1) maximum.post(std::array<std::int64_t, 1>{1});  // rank 0 never does
    throw std::runtime_error("one rank's failure");
  };
  CHECK_THROWS_AS(left_by_exception(), std::runtime_error);
}

TEST_CASE("one rank's signal is known to all after the next boundary, and the clock is rank 0's") {
  const MpiComm world = MpiComm::world();
  note_stop_signals();
  Control control(world);
  control.post({});
  CHECK_FALSE(control.read().stop);
  control.post({.out_of_time = world.rank() == 0});
  const StopReason late = control.read().stop;
  CHECK(late.out_of_time);
  CHECK(late.signal == 0);
  control.post({});
  if (world.rank() == world.size() - 1) {
    ::raise(SIGUSR2);
    ::raise(SIGUSR2);  // at once after the first: the same request
    CHECK(stop_signal() == SIGUSR2);
  }
  CHECK_FALSE(control.read().stop);  // posted before the signal came
  control.post({});
  CHECK(control.read().stop.signal == SIGUSR2);
  CHECK(signal_name(SIGUSR2) == "SIGUSR2");
}
