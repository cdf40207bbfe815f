// SPDX-License-Identifier: Apache-2.0
// ranks: 1 2 4
/// The watchdog while nothing hangs: a rank that gets on keeps the others, however long they wait for it, and nothing is
/// left of their asking. Its judgements are in tests/cli/test_hang.py, for they end the job.
#include "llmtrain/driver/watchdog.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <filesystem>
#include <thread>

#include "llmtrain/base/beacon.hpp"
#include "llmtrain/base/clock.hpp"
#include "support/scratch_folder.hpp"

using namespace llmtrain;
namespace fs = std::filesystem;

TEST_CASE("one rank gets on for many times the limit, and the others wait") {
  const MpiComm world = MpiComm::world();
  const ScratchFolder own;
  const std::string folder = world.broadcast(own.path(), 0);
  {
    const Watchdog watchdog(world, folder, 2);
    bool asked = false;  // the folder of those who wait was seen
    if (world.rank() == world.size() - 1) {
      for (const Stopwatch watch; watch.seconds() < 6; std::this_thread::sleep_for(std::chrono::milliseconds(10))) {
        Beacon::beat();
        asked = asked || !fs::is_empty(folder);
      }
      CHECK(asked == (world.size() > 1));
    }
    world.barrier();
  }
  world.barrier();
  CHECK(fs::is_empty(folder));
  world.barrier();
}

TEST_CASE("a limit of 0 watches nothing") {
  const MpiComm world = MpiComm::world();
  const Watchdog watchdog(world, "/nowhere", 0);
}
