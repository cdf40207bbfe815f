// SPDX-License-Identifier: Apache-2.0
/// One thread keeps the time and touches no file; looks into the folder have threads of their own, because a file system
/// that hangs is what it may have to report.
#include "llmtrain/driver/watchdog.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <future>
#include <mutex>
#include <random>
#include <sstream>
#include <system_error>
#include <thread>

#include "llmtrain/base/beacon.hpp"
#include "llmtrain/base/clock.hpp"
#include "llmtrain/base/error.hpp"
#include "llmtrain/base/files.hpp"
#include "llmtrain/base/host.hpp"
#include "llmtrain/base/inject.hpp"
#include "llmtrain/driver/run_folder.hpp"
#include "llmtrain/driver/standings.hpp"

namespace llmtrain {

namespace {

/// Seconds between two looks. From a minute on long enough for a network file system to show what others wrote.
double seconds_between_looks(double limit) {
  return limit < 60 ? std::max(limit / 30, 0.05) : std::clamp(limit / 30, 15.0, 20.0);
}

/// A name by chance, rank 0's. Collective.
std::string shared_token(const MpiComm& world) {
  std::random_device device;
  return world.broadcast(fmt::format("{:08x}", device()), 0);
}

/// All ranks', by rank. Collective.
std::vector<Member> gather_members(const MpiComm& world) {
  std::vector<Member> members;
  for (const std::string& text : world.all_gather(fmt::format("{} {}", ::getpid(), host_name()))) {
    Member& member = members.emplace_back();
    std::istringstream(text) >> member.process >> member.host;
  }
  return members;
}

}  // namespace

struct Watchdog::Impl {
  RunFolder run;
  double limit;
  int rank;
  std::vector<Member> members;
  StandingsFolder folder;
  std::mutex mutex;
  std::condition_variable_any wake;
  std::future<void> look;  // at work; touches `folder`, so there is one at a time
  std::jthread thread;     // the last member: it uses the others

  /// Ends the process if the job hangs.
  void look_around(const Standing& own) {
    static_cast<void>(fault_at("watch"));
    const std::optional<Standings> standings = folder.look(own, limit);
    if (!standings) return;
    const std::string report = hang_report(members, *standings, limit, run.hang());
    try {
      atomic_write(run.hang(), hang_json(members, *standings, limit));
      folder.remove();
      const FileDescriptor log(::open(run.log().c_str(), O_WRONLY | O_APPEND | O_CLOEXEC));
      if (log) static_cast<void>(write_all(log.get(), "error: " + report + "\n"));
    } catch (const Error&) {  // the report is for people first
    }
    end_process({ExitCode::hang, report});
  }

  void watch(const std::stop_token& stop) {
    const double pause = seconds_between_looks(limit);
    constexpr double looks_till_alone = 2 * StandingsFolder::looks_to_judge;
    std::uint64_t beats = Beacon::read().beats;
    double moved = steady_seconds(), ticked = moved, looked = moved;
    std::unique_lock lock(mutex);
    while (!wake.wait_for(lock, stop, std::chrono::duration<double>(pause), [&] { return stop.stop_requested(); })) {
      const double now = steady_seconds();
      if (now - ticked > 5 * pause) {  // this process was stopped as a whole
        moved += now - ticked;
        looked += now - ticked;
      }
      ticked = now;
      Beacon::Reading reading = Beacon::read();
      if (reading.beats != beats) moved = now;
      beats = reading.beats;
      const Standing own{now - moved, reading.step, std::move(reading.at), std::move(reading.waits_for)};
      const bool idle = !look.valid() || look.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
      if (idle && has_succeeded()) looked = now;
      if (own.still < limit) looked = now;
      if (now - looked > looks_till_alone * pause) {
        end_process({ExitCode::hang, lone_report(rank, members[static_cast<std::size_t>(rank)], own, limit, run.dir)});
      }
      if (idle) start_look(own);
    }
  }

  /// Where the system gives no thread, it counts as one that failed.
  void start_look(const Standing& own) {
    try {
      look = std::async(std::launch::async, [this, own] { look_around(own); });
    } catch (const std::system_error&) {  // `look` stays without one
    }
  }

  /// Of the look before.
  bool has_succeeded() {
    if (!look.valid()) return false;
    try {
      look.get();
      return true;
    } catch (const std::exception&) {
      return false;
    }
  }

  ~Impl() {
    thread.request_stop();
    if (thread.joinable()) thread.join();
    if (look.valid()) look.wait();
    folder.withdraw();
  }
};

Watchdog::Watchdog(const MpiComm& world, const std::string& dir, double limit) {
  if (limit == 0) return;
  const RunFolder run{dir};
  impl_.reset(new Impl{.run = run,
                       .limit = limit,
                       .rank = world.rank(),
                       .members = gather_members(world),
                       .folder = {run.standings(shared_token(world)), world.rank(), world.size()},
                       .mutex = {},
                       .wake = {},
                       .look = {},
                       .thread = {}});
  impl_->thread = std::jthread([impl = impl_.get()](const std::stop_token& stop) { impl->watch(stop); });
}

Watchdog::~Watchdog() = default;

}  // namespace llmtrain
