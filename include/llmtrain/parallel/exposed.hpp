// SPDX-License-Identifier: Apache-2.0
/// Exposed communication: the time in which computing stands still for it, by axis.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

namespace llmtrain {

/// Seconds, measured (Device::take_exposed) or predicted (plan/). What collectives that run beside computing take from it is
/// not in them.
struct Exposed {
  double tensor = 0;
  double pipeline = 0;  ///< transfers between stages, with the time in which the stages have no work
  double data = 0;      ///< gathers of weights and sums of gradients
  double world = 0;     ///< the sums over all ranks that a step ends with

  double total() const { return tensor + pipeline + data + world; }
  /// By name, in the order of the members.
  std::vector<std::pair<std::string, double>> axes() const;
  /// Adds a group's seconds to its axis.
  void add(const std::string& group, double seconds);
};

/// The same by group name, by axis.
Exposed by_axis(const std::map<std::string, double>& by_group);

}  // namespace llmtrain
