// SPDX-License-Identifier: Apache-2.0
/// One armed fault at most: which point, when, and what then.
#include "llmtrain/base/inject.hpp"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <charconv>
#include <cstdlib>
#include <iterator>
#include <limits>
#include <utility>

#include "llmtrain/base/error.hpp"

namespace llmtrain {

namespace {

constexpr const char* variable = "LLMTRAIN_INJECT";

constexpr std::array points{
    FaultPoint{"step", "a training step begins"},
    FaultPoint{"save.begin", "rank 0 makes the folder that is written aside"},
    FaultPoint{"save.open", "a rank creates its shard"},
    FaultPoint{"save.piece", "a rank writes the next piece into its shard"},
    FaultPoint{"save.write", "bytes go to the disk, of a shard or of checkpoint.h5; `fail` is a full disk"},
    FaultPoint{"save.close", "a rank closes its shard: its headers are not all written yet"},
    FaultPoint{"save.verify", "a rank reads its shard back"},
    FaultPoint{"save.index", "rank 0 writes checkpoint.h5"},
    FaultPoint{"save.manifest", "rank 0 writes the manifest"},
    FaultPoint{"save.rename", "rank 0 gives the folder its name: this is the commit"},
    FaultPoint{"save.latest", "rank 0 points `latest` to the new checkpoint"},
    FaultPoint{"save.prune", "rank 0 marks a checkpoint beyond checkpoint.keep as unfinished"},
    FaultPoint{"save.remove", "rank 0 removes the files of such a checkpoint"},
    FaultPoint{"save.end", "a save is over on rank 0"},
    FaultPoint{"watch", "the watchdog of a rank looks into the run's folder"},
};

enum class Kind { fail, kill, stop, hang };

constexpr std::pair<std::string_view, Kind> kinds[] = {
    {"sigkill", Kind::kill}, {"sigstop", Kind::stop}, {"hang", Kind::hang}, {"fail", Kind::fail}};

struct Fault {
  std::string point;  ///< empty: none
  Kind kind = Kind::kill;
  std::int64_t pass = 1;   ///< passes are counted from 1
  std::int64_t times = 1;  ///< passes in a row that fail
  std::int64_t rank = -1;  ///< -1: any
  std::int64_t step = -1;  ///< -1: any
};

// What the environment of the process says is the process's, as the environment is.
Fault armed;
std::atomic<std::int64_t> passes{0};
thread_local std::int64_t step_of_thread = 0;

std::int64_t number(std::string_view text, std::string_view part) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  require(error == std::errc() && end == text.data() + text.size() && value >= 0, ExitCode::usage,
          "{}: '{}' needs a number that is not negative; see llmtrain help inject", variable, part);
  return value;
}

void read_part(Fault& fault, std::string_view part) {
  const auto equals = std::min(part.find('='), part.size());
  const std::string_view key = part.substr(0, equals);
  const std::string_view value = equals < part.size() ? part.substr(equals + 1) : std::string_view();
  if (key == "phase") {
    const auto colon = std::min(value.find(':'), value.size());
    fault.point = value.substr(0, colon);
    if (colon < value.size()) fault.pass = std::max<std::int64_t>(number(value.substr(colon + 1), part), 1);
  } else if (key == "kind") {
    const auto kind = std::ranges::find(kinds, value, &std::pair<std::string_view, Kind>::first);
    require(kind != std::end(kinds), ExitCode::usage, "{}: unknown kind '{}'; use sigkill, sigstop, hang or fail",
            variable, value);
    fault.kind = kind->second;
  } else if (key == "rank") {
    fault.rank = number(value, part);
  } else if (key == "step") {
    fault.step = number(value, part);
  } else if (key == "times") {
    const std::int64_t times = number(value, part);
    fault.times = times == 0 ? std::numeric_limits<std::int64_t>::max() : times;
  } else {
    fail(ExitCode::usage, "{}: unknown part '{}'; see llmtrain help inject", variable, part);
  }
}

}  // namespace

std::span<const FaultPoint> fault_points() { return points; }

std::string arm_faults(int rank) {
  armed = {};
  passes = 0;
  const char* const text = std::getenv(variable);
  if (text == nullptr) return "";
  Fault fault;
  std::string_view rest = text;
  while (!rest.empty()) {
    const auto comma = std::min(rest.find(','), rest.size());
    read_part(fault, rest.substr(0, comma));
    rest.remove_prefix(std::min(comma + 1, rest.size()));
  }
  require(std::ranges::find(points, fault.point, &FaultPoint::name) != points.end(), ExitCode::usage,
          "{}: '{}' is no phase; see llmtrain help inject", variable, fault.point);
  if (fault.rank < 0 || fault.rank == rank) armed = fault;
  return fmt::format("a fault is injected on purpose: {}={}", variable, text);
}

void set_fault_step(std::int64_t step) { step_of_thread = step; }

bool fault_at(std::string_view name) {
  if (armed.point != name || (armed.step >= 0 && armed.step != step_of_thread)) return false;
  const std::int64_t pass = ++passes;
  if (pass < armed.pass || pass - armed.pass >= armed.times) return false;
  if (armed.kind == Kind::fail) return true;
  while (armed.kind == Kind::hang) ::pause();
  ::kill(::getpid(), armed.kind == Kind::kill ? SIGKILL : SIGSTOP);
  return false;
}

void fault_point(std::string_view name) {
  if (fault_at(name)) fail(ExitCode::io_error, "an injected fault at {}", name);
}

std::string faults_help() {
  std::string out = fmt::format(
      "{}=phase=NAME[:K][,kind=KIND][,rank=R][,step=S][,times=N] in the environment makes a training run fail on\n"
      "purpose, once, when it passes the phase for the K-th time (1 unless given).\n"
      "  kind   sigkill (unless given), sigstop, hang: the thread that passes goes no further, or fail: the work of "
      "this\n"
      "         phase fails as on a broken disk\n"
      "  rank   only there; else on every rank that passes\n"
      "  step   only passes of this step, or of its save, count\n"
      "  times  how many passes from the K-th on fail; 0: all\n"
      "Phases, each just before\n",
      variable);
  for (const FaultPoint& point : points) out += fmt::format("  {:<14} {}\n", point.name, point.meaning);
  return out;
}

}  // namespace llmtrain
