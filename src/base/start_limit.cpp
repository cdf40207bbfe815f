// SPDX-License-Identifier: Apache-2.0
/// A thread that sleeps until it is over or too late.
#include "llmtrain/base/start_limit.hpp"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <cstring>

#include "llmtrain/base/error.hpp"
#include "llmtrain/base/host.hpp"

namespace llmtrain {

namespace {

constexpr const char* variable = "LLMTRAIN_INIT_TIMEOUT";

double seconds_allowed() {
  constexpr double unless_set = 600;
  const char* const text = std::getenv(variable);
  if (text == nullptr) return unless_set;
  double value = 0;
  const char* const end = text + std::strlen(text);
  const auto [stop, error] = std::from_chars(text, end, value);
  require(error == std::errc() && stop == end && value >= 0 && value <= 1e9, ExitCode::usage,
          "{}={}: a number of seconds up to 1e9 is needed; 0 = no limit", variable, text);
  return value;
}

}  // namespace

StartLimit::StartLimit() : seconds_(seconds_allowed()) {
  if (seconds_ > 0) thread_ = std::jthread([this](const std::stop_token& stop) { wait(stop); });
}

void StartLimit::wait(const std::stop_token& stop) {
  // One rank after the other, so that mostly one speaks before the launcher ends them all.
  const char* const rank = launcher_rank();
  const double turn = 0.05 * std::min(rank == nullptr ? 0 : std::atoi(rank), 100);
  std::unique_lock lock(mutex_);
  const std::chrono::duration<double> time(seconds_ + turn);
  if (wake_.wait_for(lock, stop, time, [&] { return stop.stop_requested(); })) return;
  end_process(
      {ExitCode::hang,
       fmt::format("rank {} on {} has waited {} s for MPI to start ({}): ranks of this job have not come, or the "
                   "network between its nodes does not carry MPI; raise the limit if they take longer",
                   rank == nullptr ? "0" : rank, host_name(), seconds_, variable)});
}

}  // namespace llmtrain
