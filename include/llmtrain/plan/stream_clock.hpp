// SPDX-License-Identifier: Apache-2.0
/// StreamClock: runs the clocks of all streams over what a dry run issues. What overlaps with what follows from the events
/// that order the real step.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>

#include "llmtrain/plan/costs.hpp"

namespace llmtrain {

class StreamClock final : public OpObserver {
 public:
  explicit StreamClock(const Hardware& hardware) : hardware_(hardware) {}

  /// Seconds at which the work issued on a stream so far ends.
  double now(Stream stream) const;

  /// Seconds of computation by operation.
  std::map<std::string, double> by_operation() const;
  /// Seconds of collectives by group name, hidden or not.
  const std::map<std::string, double>& by_group() const { return by_group_; }

  /// Seconds in which streams wait for batches, by group name.
  const std::map<std::string, double>& exposed() const { return exposed_; }

  /// How groups lie on the nodes, by name; of several of one name the one on the most nodes.
  const std::map<std::string, GroupPlacement>& placements() const { return by_name_; }

  void on_operation(const OpNote& note) override;
  /// Transfers between stages take no time here: simulate() of the whole pipeline knows when their partners are ready.
  void on_batch(const BatchNote& batch) override;
  void on_record(Stream stream, Event event) override;
  void on_wait(Stream stream, Event event) override;
  void on_synchronize(Stream) override {}

 private:
  double time_of(Event event) const;
  double& clock(Stream stream) { return streams_[stream.id]; }

  const Hardware& hardware_;
  std::unordered_map<int, double> streams_;
  std::unordered_map<const Group*, double> groups_;
  std::unordered_map<const Group*, GroupPlacement> placements_;
  std::unordered_map<std::uint64_t, double> events_;
  std::unordered_map<std::uint64_t, const Group*> batches_;  ///< by the event of their end
  std::unordered_map<const char*, double> by_operation_;
  std::map<std::string, double> by_group_, exposed_;
  std::map<std::string, GroupPlacement> by_name_;
  int computing_ = 0;  ///< the stream of the last operation: collectives slow it down
};

}  // namespace llmtrain
