// SPDX-License-Identifier: Apache-2.0
/// The lock of a run's folder: who may take it over at once, who waits, who is refused.
#include "llmtrain/driver/run_lock.hpp"

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <thread>

#include "checkpoint_fixture.hpp"
#include "llmtrain/base/error.hpp"

using namespace llmtrain;
using namespace std::chrono_literals;
using checkpoint_test::Scratch;
using checkpoint_test::slurp;
using checkpoint_test::spill;

namespace {

const LockTimes quick{20ms, 400ms, 5ms};

std::string said;
const RunLock::Say say = [](const std::string& line) { said += line; };

/// What a run that is no more has left.
void leave(const std::string& folder, const LockHolder& holder) {
  spill(folder + "/lock",
        fmt::format("host {}\nboot {}\nspace {}\nprocess {}\nstart {}\njob {}\ntoken {}\nbeats 000000000007\n",
                    holder.host, holder.boot, holder.space, holder.process, holder.start, holder.job, holder.token));
}

/// A process number that nobody has: of a child that is over.
std::string gone_process() {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(0);
  int status = 0;
  ::waitpid(child, &status, 0);
  return std::to_string(child);
}

/// Takes the lock and gives it back; how long that took.
std::chrono::milliseconds taken_after(const std::string& folder, const LockHolder& self = LockHolder::self()) {
  said.clear();
  const auto begin = std::chrono::steady_clock::now();
  const RunLock lock(folder, say, quick, self);
  said += lock.note();
  return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - begin);
}

int code_of(const std::string& folder, const LockHolder& self = LockHolder::self()) {
  try {
    RunLock(folder, say, quick, self);
  } catch (const Error& error) {
    said = error.what();
    return static_cast<int>(error.code());
  }
  return 0;
}

}  // namespace

TEST_CASE("a free folder is locked at once and free again afterwards") {
  const Scratch scratch;
  {
    const RunLock lock(scratch.path(), say, quick);
    CHECK(std::filesystem::exists(scratch.path() / "lock"));
    CHECK(lock.note().empty());
    const std::string before = slurp(scratch.path() / "lock");
    std::this_thread::sleep_for(300ms);
    CHECK(slurp(scratch.path() / "lock") != before);  // its heart beats
    CHECK_FALSE(lock.is_lost());
  }
  CHECK(std::filesystem::is_empty(scratch.path()));
  CHECK(code_of(scratch.path() / "none") == 73);
}

TEST_CASE("a run that is alive is named, on this machine and on another, whatever the job") {
  const Scratch scratch;
  LockHolder there = LockHolder::self();
  there.host = "elsewhere";
  there.job = "SLURM_JOB_ID=1";
  LockHolder here = LockHolder::self();
  SUBCASE("on another machine") {}
  SUBCASE("on this one") { there.host = here.host; }
  SUBCASE("on this one, in the same job") {
    there.host = here.host;
    here.job = there.job;
  }
  const RunLock lock(scratch.path(), say, quick, there);
  CHECK(code_of(scratch.path(), here) == 73);
  CHECK(said.find(fmt::format("process {} on {} (SLURM_JOB_ID=1)", there.process, there.host)) != std::string::npos);
  CHECK_FALSE(lock.is_lost());
}

TEST_CASE("what a process of this machine has left is taken over at once, and said so") {
  const Scratch scratch;
  LockHolder holder = LockHolder::self();
  SUBCASE("it is gone") { holder.process = gone_process(); }
  SUBCASE("its number is another process's now") { holder.start = std::string(1, '1'); }
  leave(scratch.path(), holder);
  CHECK(taken_after(scratch.path()) < quick.stale);
  CHECK(said.find(fmt::format("is taken over from process {}", holder.process)) != std::string::npos);
  CHECK(std::filesystem::is_empty(scratch.path()));
}

TEST_CASE("what an earlier start of the same job has left elsewhere is taken over at once") {
  const Scratch scratch;
  LockHolder holder = LockHolder::self();
  holder.host = "elsewhere";
  holder.job = "SLURM_JOB_ID=1";
  leave(scratch.path(), holder);
  LockHolder self = LockHolder::self();
  self.job = holder.job;
  CHECK(taken_after(scratch.path(), self) < quick.stale);
  CHECK(said.find("an earlier start of this job") != std::string::npos);
}

TEST_CASE("what is left elsewhere, after a reboot, in a container or by nobody known is waited for") {
  const Scratch scratch;
  LockHolder holder = LockHolder::self();
  holder.process = gone_process();
  holder.job = std::string(1, '-');
  SUBCASE("another machine") { holder.host = "elsewhere"; }
  SUBCASE("another boot") { holder.boot = std::string(1, 'x'); }
  SUBCASE("other process numbers") { holder.space = "pid:[1]"; }
  leave(scratch.path(), holder);
  SUBCASE("an empty file") { spill(scratch.path() / "lock", ""); }
  SUBCASE("rubbish") { spill(scratch.path() / "lock", std::string(3000, '\xff')); }
  CHECK(taken_after(scratch.path()) >= quick.stale);
  CHECK(said.find("waiting up to 0.4 s") != std::string::npos);
  CHECK(said.find("is taken over from") != std::string::npos);
  CHECK(std::filesystem::is_empty(scratch.path()));
}

TEST_CASE("of two that want a left lock one gets it") {
  const Scratch scratch;
  for (int round = 0; round < 20; ++round) {
    LockHolder holder = LockHolder::self();
    holder.process = gone_process();
    leave(scratch.path(), holder);
    std::atomic<int> taken = 0, refused = 0;
    const auto want = [&] {
      try {
        const RunLock lock(
            scratch.path(), [](const std::string&) {}, quick);
        ++taken;
        while (taken + refused < 2) std::this_thread::sleep_for(1ms);
      } catch (const Error&) {
        ++refused;
      }
    };
    std::thread first(want), second(want);
    first.join();
    second.join();
    CHECK(taken == 1);
    CHECK(refused == 1);
  }
}

TEST_CASE("a run whose lock was taken over knows it, and leaves the lock alone") {
  const Scratch scratch;
  LockHolder other = LockHolder::self();
  other.host = "elsewhere";
  {
    const RunLock lock(scratch.path(), say, quick);
    leave(scratch.path(), other);
    for (int i = 0; i < 500 && !lock.is_lost(); ++i) std::this_thread::sleep_for(10ms);
    CHECK(lock.is_lost());
  }
  CHECK(std::filesystem::exists(scratch.path() / "lock"));
}
