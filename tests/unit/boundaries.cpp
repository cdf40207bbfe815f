// SPDX-License-Identifier: Apache-2.0
/// Channels of a pipeline are made and ended by both ends together: proof on paper that no ring stands still at either.
#include "llmtrain/driver/boundaries.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <deque>
#include <memory>
#include <string>
#include <utility>

#include "support/idle_device.hpp"

using namespace llmtrain;

namespace {

/// A channel as both of its ends know it.
using ChannelName = std::pair<std::string, std::vector<int>>;
/// What each rank does, in its order.
using Sequences = std::vector<std::deque<ChannelName>>;

class Channel final : public Communicator {
 public:
  Channel(Device& device, const Group& group, std::deque<ChannelName>& ended)
      : Communicator(device, group), ended_(ended) {}
  ~Channel() override { ended_.push_back({group_.name, group_.world_ranks}); }

 private:
  Event do_submit(std::span<const Op>, Event) override { return {}; }
  std::deque<ChannelName>& ended_;
};

/// A device that notes which communicators are made and ended.
class ChannelDevice final : public test::IdleDevice {
 public:
  ChannelDevice(std::deque<ChannelName>& made, std::deque<ChannelName>& ended) : made_(made), ended_(ended) {}
  std::unique_ptr<Communicator> make_communicator(const Group& group, Tensor) override {
    made_.push_back({group.name, group.world_ranks});
    return std::make_unique<Channel>(*this, group, ended_);
  }

 private:
  std::deque<ChannelName>&made_, &ended_;
};

/// Whether all ranks come to the end of their sequences when each step takes both ends of the channel at once.
bool comes_to_an_end(Sequences sequences) {
  for (bool moved = true; moved;) {
    moved = false;
    for (std::deque<ChannelName>& mine : sequences) {
      if (mine.empty()) continue;
      const ChannelName next = mine.front();
      const auto is_at_it = [&](int rank) {
        const std::deque<ChannelName>& other = sequences[static_cast<std::size_t>(rank)];
        return !other.empty() && other.front() == next;
      };
      if (!is_at_it(next.second[0]) || !is_at_it(next.second[1])) continue;
      for (const int rank : next.second) sequences[static_cast<std::size_t>(rank)].pop_front();
      moved = true;
    }
  }
  return std::all_of(sequences.begin(), sequences.end(), [](const auto& left) { return left.empty(); });
}

}  // namespace

TEST_CASE("no pipeline stands still while its channels are made or ended") {
  for (int stages = 2; stages <= 8; ++stages) {
    for (const int chunks : {1, 2}) {
      CAPTURE(stages);
      CAPTURE(chunks);
      Sequences made(static_cast<std::size_t>(stages)), ended(made);
      for (int stage = 0; stage < stages; ++stage) {
        const auto at = static_cast<std::size_t>(stage);
        ChannelDevice device(made[at], ended[at]);
        ParallelConfig parallel;
        parallel.pipeline = stages;
        MemoryPlan plan;
        const Topology topology(parallel, stages);
        Boundaries boundaries({1, 1, 1}, {stages, stage, 8, chunks}, topology, stage, {4, 8, DType::fp32},
                              device.kind(), plan);
        const Arena arena(device, plan);
        boundaries.bind(arena, device, MpiComm{});
        boundaries.close();
      }
      CHECK(made[0].size() == (chunks == 1 ? 2 : 4));  // two directions, of a chain's first stage to one side
      CHECK(comes_to_an_end(made));
      CHECK(comes_to_an_end(ended));
      for (std::size_t rank = 0; rank < made.size(); ++rank) CHECK(ended[rank].size() == made[rank].size());
    }
  }
}
