// SPDX-License-Identifier: Apache-2.0
/// What ranks issue in their groups, and the proof that they agree: nobody waits for a collective that another member does
/// not issue, or issues otherwise or later.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "llmtrain/backend/observer.hpp"

namespace llmtrain {

/// Name and members of a group.
using GroupKey = std::pair<std::string, std::vector<int>>;

/// One collective as its group must see it: the same on every member. Of a transfer both ends are named, so that sends
/// meet receives.
struct IssuedCollective {
  std::string_view name;
  DType dtype = DType::fp32;
  std::int64_t elements = 0;  ///< of the larger of source and destination
  int from = -1, to = -1;  ///< ranks of the group: root of a broadcast, ends of a transfer; `to`: distance of a shift
  ReduceOp reduce = ReduceOp::sum;

  bool operator==(const IssuedCollective&) const = default;
};
using IssuedBatch = std::vector<IssuedCollective>;

/// Listens to one rank, and knows what it issued when that is gone.
class IssuedBatches final : public OpObserver {
 public:
  IssuedBatches() = default;
  IssuedBatches(IssuedBatches&&) = default;
  void on_operation(const OpNote&) override {}
  void on_batch(const BatchNote& note) override;

  /// By group, in order.
  const std::map<GroupKey, std::vector<IssuedBatch>>& by_group() const { return by_group_; }

 private:
  std::map<GroupKey, std::vector<IssuedBatch>> by_group_;
  std::map<const Group*, std::vector<IssuedBatch>*> known_;  ///< where a group's are
};

class GroupCheck {
 public:
  /// Compares the rank with the members of its groups that came before. Error(internal) names the group, both ranks and the
  /// first batch that differs.
  void add(int rank, const IssuedBatches& issued);
  /// After the last rank: Error(internal) for a rank that issued nothing in a group of its own in which others did.
  void finish() const;

  /// Groups of which at least two members were compared, by name.
  std::map<std::string, int> compared() const;

 private:
  struct Seen {
    std::vector<int> ranks;  ///< that issued something; the batches are the first one's
    std::vector<IssuedBatch> batches;
  };
  std::map<GroupKey, Seen> seen_;
  std::set<int> ranks_;
};

}  // namespace llmtrain
