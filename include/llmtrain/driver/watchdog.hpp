// SPDX-License-Identifier: Apache-2.0
/// Watchdog: a thread that ends a job whose ranks get on no more (run.hang_timeout), and tells where each of them stands.
#pragma once

#include <memory>
#include <string>

#include "llmtrain/base/mpi.hpp"

namespace llmtrain {

class Watchdog {
 public:
  /// Watches this process's Beacon from here on. When no rank has got on for `limit` seconds, one rank prints the report,
  /// writes it to hang.json in the run's folder `dir`, and all processes end with exit code 81 (hang), a few looks of
  /// max(limit / 30, 50 ms), 15 to 20 s from a minute on, after the limit. A rank that waits for one that gets on is no
  /// hang, and time in which this process was stopped itself does not count. Where `dir` does not answer, each rank speaks
  /// for itself. 0: nothing is watched. Collective over `world`.
  Watchdog(const MpiComm& world, const std::string& dir, double limit);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;  ///< null: nothing is watched
};

}  // namespace llmtrain
