// SPDX-License-Identifier: Apache-2.0
/// How often a waiting loop looks where ranks share cores.
#include "llmtrain/base/backoff.hpp"

#include <doctest/doctest.h>
#include <sys/resource.h>

#include "llmtrain/base/clock.hpp"

using namespace llmtrain;

TEST_CASE("a wait among ranks that share cores is mostly asleep, and a new wait begins awake") {
  Backoff::share_cores();
  Backoff backoff;
  // A nap gives up the core of its own will; a yield, as the kernel counts, does not.
  const auto given_up = [] {
    rusage usage{};
    getrusage(RUSAGE_THREAD, &usage);
    return usage.ru_nvcsw;
  };
  const auto naps_in = [&](int pauses) {
    const long before = given_up();
    for (int i = 0; i < pauses; ++i) backoff.pause();
    return given_up() - before;
  };
  // On busy cores a nap can be over before the thread has given up its core, and is not counted: so more than one try.
  const auto is_awake_then_naps = [&] {
    backoff.reset();
    if (naps_in(16) != 0 || naps_in(17) != 17) return false;  // from 30 us to 1 ms, which all later ones take
    const Stopwatch watch;
    const bool naps = naps_in(1) == 1;
    CHECK(watch.seconds() >= 1e-3);  // naps never end early
    return naps;
  };
  bool holds = false;
  for (int tries = 0; tries < 20 && !holds; ++tries) holds = is_awake_then_naps();
  CHECK(holds);
  backoff.reset();
  CHECK(naps_in(16) == 0);
}
