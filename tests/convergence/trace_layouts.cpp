// SPDX-License-Identifier: Apache-2.0
/// A pairwise cover of all layouts, issued on every rank without computing: members of a group agree on every batch, and no
/// rank has a hazard.
#include <map>
#include <set>

#include "llmtrain/backend/hazards.hpp"
#include "llmtrain/driver/step.hpp"
#include "support/layout_matrix.hpp"

using namespace llmtrain;

namespace {

/// Name and members of a group.
using GroupKey = std::pair<std::string, std::vector<int>>;

/// What a rank issues in each of its groups, one text a batch. Of a transfer both ends give the same text.
class BatchRecorder final : public OpObserver {
 public:
  std::map<GroupKey, std::vector<std::string>> batches;

  void on_operation(const OpNote&) override {}
  void on_batch(const BatchNote& note) override {
    std::string text;
    for (const CollectiveNote& c : note.collectives) {
      const std::string name = c.name;
      const bool transfer = name == "send" || name == "receive";
      const Tensor& larger = c.destination.bytes() > c.source.bytes() ? c.destination : c.source;
      text += (transfer ? "transfer" : name) + " " + larger.describe() + "; ";
    }
    batches[{note.group->name, note.group->world_ranks}].push_back(text);
  }
};

std::map<GroupKey, std::vector<std::string>> batches_of(const Deck& deck, int ranks, int rank) {
  const std::unique_ptr<Device> device = make_trace_device(DeviceKind::cpu);
  Parts parts(deck, {Topology(deck, ranks), rank, MpiComm{}}, *device, 0);
  BatchRecorder recorder;
  HazardChecker hazards([&](const void* address) { return parts.arena.at(address); });
  Observers both{&recorder, &hazards};
  device->set_observer(&both);
  Timers timers;
  const LoadBatch load = [](std::int64_t, const Batch&) {};
  for (int step = 0; step < 2; ++step) run_step(parts, StepInputs{}, load, timers);
  run_evaluation(parts, parts.micro_batches(), load);
  device->set_observer(nullptr);
  return recorder.batches;
}

}  // namespace

TEST_CASE("in every kind of layout all members of a group issue the same batches, without a hazard") {
  for (const auto& [name, model] : matrix_models()) {
    CAPTURE(name);
    std::vector<Layout> all;
    for (const int ranks : {2, 3, 4, 6, 8}) {
      for (const Layout& layout : all_layouts(model, ranks)) all.push_back(layout);
    }
    for (const Layout& layout : pairwise_cover(all)) {
      Deck deck = layout.apply(model);
      deck.precision.compute = Compute::bf16;  // weights beside masters
      const std::string text = layout_text(deck, Topology(deck, layout.ranks));
      CAPTURE(text);
      std::map<GroupKey, std::vector<std::string>> first;
      std::map<GroupKey, std::size_t> members;
      for (int rank = 0; rank < layout.ranks; ++rank) {
        for (const auto& [group, batches] : batches_of(deck, layout.ranks, rank)) {
          CAPTURE(group.first);
          ++members[group];
          CHECK((first.emplace(group, batches).first->second == batches));
        }
      }
      for (const auto& [group, count] : members) CHECK(count == group.second.size());
      CHECK(first.at({"world", Topology(deck, layout.ranks).members(world_axes, 0)}).size() == 3);  // one each
    }
  }
}
