// SPDX-License-Identifier: Apache-2.0
/// Beacon: names nest, and everything that gets a process on is seen.
#include "llmtrain/base/beacon.hpp"

#include <doctest/doctest.h>
#include <fcntl.h>

#include <array>
#include <thread>

#include "llmtrain/base/files.hpp"
#include "llmtrain/base/timer.hpp"
#include "support/scratch_folder.hpp"

using namespace llmtrain;

namespace {

/// Whether `body` is seen to get on.
template <class Body>
bool beats(Body&& body) {
  const auto before = Beacon::read().beats;
  body();
  return Beacon::read().beats > before;
}

}  // namespace

TEST_CASE("ranges and waits nest, and another thread reads them") {
  CHECK(Beacon::read().at.empty());
  {
    const Beacon::Range outer("step");
    Timers timers;
    const TimerRange inner(timers, "forward");
    const Beacon::Wait wait("group 'tp'");
    Beacon::Reading seen;
    {
      const Beacon::Wait deeper("other ranks");
      std::thread([&] { seen = Beacon::read(); }).join();
    }
    CHECK(seen.at == "step/forward");
    CHECK(seen.waits_for == "other ranks");
    CHECK(Beacon::read().waits_for == "group 'tp'");
  }
  CHECK(Beacon::read().at.empty());
  CHECK(Beacon::read().waits_for.empty());
}

TEST_CASE("data that is read or written is seen, and so is the end of a wait; a watcher's own small files are not") {
  const ScratchFolder scratch;
  const FileDescriptor file(::open((scratch / "file").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
  CHECK_FALSE(beats([&] { CHECK(write_all(file.get(), "text") == 0); }));
  CHECK_FALSE(beats([&] { CHECK(read_small_file(scratch / "file", 100) == "text"); }));
  std::array<std::byte, 4> bytes{};
  CHECK(beats([&] { static_cast<void>(read_full_at(file.get(), 0, bytes)); }));
  CHECK(beats([&] { static_cast<void>(write_all_at(file.get(), 0, bytes)); }));
  CHECK(beats([&] { sync_path(scratch / "file"); }));
  CHECK(beats([] { const Beacon::Wait wait("other ranks"); }));
}

TEST_CASE("the step is read") {
  Beacon::set_step(17);
  CHECK(Beacon::read().step == 17);
  Beacon::set_step(0);
}
