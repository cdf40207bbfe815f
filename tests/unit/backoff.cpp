// SPDX-License-Identifier: Apache-2.0
/// How often a waiting loop looks where ranks share cores.
#include "llmtrain/base/backoff.hpp"

#include <doctest/doctest.h>

#include "llmtrain/base/clock.hpp"

using namespace llmtrain;

TEST_CASE("a wait among ranks that share cores is mostly asleep, and a new wait begins awake") {
  Backoff::share_cores();
  Backoff backoff;
  const auto looks_in = [&](double seconds) {
    int looks = 0;
    for (const Stopwatch watch; watch.seconds() < seconds; ++looks) backoff.pause();
    return looks;
  };
  // Naps never end early: 16 yields, 17 naps from 30 us to 1 ms, then one a millisecond.
  CHECK(looks_in(0.1) < 16 + 17 + 100 + 2);
  const Stopwatch watch;
  backoff.pause();
  CHECK(watch.seconds() >= 1e-3);
  backoff.reset();
  CHECK(looks_in(0.1) > 16);
}
