// SPDX-License-Identifier: Apache-2.0
/// What is proved of a layout without running it: on every rank, members of a group agree, nothing is touched too early or
/// too late, and the bytes that a plan predicts are the ones allocated.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "llmtrain/driver/dry_run.hpp"
#include "llmtrain/driver/micro_batches.hpp"
#include "llmtrain/driver/step.hpp"
#include "llmtrain/plan/group_check.hpp"
#include "llmtrain/plan/layout.hpp"
#include "support/layout_matrix.hpp"

namespace llmtrain {

/// The CPU back end with its memory, which is counted, but with nobody to talk to: any rank can be built alone.
class LonelyDevice final : public Device {
 public:
  std::int64_t allocated = 0;  ///< bytes asked for

  DeviceKind kind() const override { return cpu_->kind(); }
  bool executes() const override { return true; }
  std::string describe() const override { return cpu_->describe(); }
  double peak_flops(DType precision, std::string* formula) const override {
    return cpu_->peak_flops(precision, formula);
  }
  Kernels& kernels() override { return cpu_->kernels(); }
  Stream make_stream(const std::string& name) override { return {this, cpu_->make_stream(name).id}; }
  void* allocate(std::int64_t bytes, MemorySpace space) override {
    allocated += bytes;
    return cpu_->allocate(bytes, space);
  }
  void release(void* pointer, MemorySpace space) override { cpu_->release(pointer, space); }
  std::unique_ptr<Communicator> make_communicator(const Group& group, Tensor workspace) override {
    return nobody_->make_communicator(group, workspace);
  }

 private:
  void do_observe(OpObserver*) override {}
  Event do_record(Stream stream) override { return cpu_->record({cpu_.get(), stream.id}); }
  void do_wait(Stream, Event) override {}
  void do_synchronize(Stream) override {}
  void do_upload(Stream, Tensor, const void*) override {}
  void do_download(Stream, void*, Tensor) override {}

  const std::unique_ptr<Device> cpu_ = make_cpu_device(1), nobody_ = make_trace_device(DeviceKind::cpu);
};

inline const RankClass& class_of(const LayoutPlan& plan, int rank) {
  const int stage = plan.topology().coordinates(rank).pp;
  for (const RankClass& c : plan.classes) {
    if (std::find(c.stages.begin(), c.stages.end(), stage) != c.stages.end()) return c;
  }
  FAIL("no class holds stage ", stage);
  return plan.classes.front();
}

/// Bytes that every rank of a run allocates against those of the plan, whose static checks hold.
inline void check_allocations(const Deck& deck, int ranks) {
  const LayoutPlan plan = plan_layout(deck, ranks, find_hardware("cpu"), PlanDepth::whole);
  const Topology topology(deck, ranks);
  std::int64_t members = 0;
  for (const RankClass& c : plan.classes) members += c.ranks;
  CHECK(members == ranks);
  for (int rank = 0; rank < ranks; ++rank) {
    CAPTURE(rank);
    LonelyDevice device;
    const std::int64_t scratch = measure(deck, topology, rank, DeviceKind::cpu).scratch_bytes;
    const Parts parts(deck, {topology, rank, MpiComm{}}, device, scratch);
    const MemoryPlan& predicted = class_of(plan, rank).memory;
    CHECK(device.allocated == predicted.total());
    for (int i = 0; i < segment_count; ++i) {
      const auto segment = static_cast<Segment>(i);
      CHECK(parts.arena.plan().bytes(segment) == predicted.bytes(segment));
    }
  }
}

/// Two steps and an evaluation of every rank: its groups agree, and it has no hazard.
inline void check_traces(const Deck& deck, int ranks) {
  const Topology topology(deck, ranks);
  const std::vector<int> everybody = topology.members(world_axes, 0);
  GroupCheck check;
  for (int rank = 0; rank < ranks; ++rank) {
    CAPTURE(rank);
    DryRank dry(deck, topology, rank, DeviceKind::cpu, micro_batches_of(deck, topology));
    IssuedBatches issued;
    HazardChecker hazards([&](const void* address) { return dry.parts.arena.at(address); });
    Observers both{&issued, &hazards};
    for (int step = 0; step < 2; ++step) dry.step(both);
    dry.device->set_observer(&both);
    run_evaluation(dry.parts, dry.parts.micro_batches(), [](std::int64_t, const Batch&) {});
    dry.device->set_observer(nullptr);
    check.add(rank, issued);
    if (ranks > 1) CHECK(issued.by_group().at({"world", everybody}).size() == 3);  // one each
  }
  check.finish();
}

/// Looks at layouts of the models of the matrix with the check, in bf16: weights stand beside masters.
template <class Choose, class Check>
void check_matrix(std::initializer_list<int> rank_counts, Choose choose, Check check) {
  std::int64_t looked_at = 0;
  for (const auto& [name, model] : matrix_models()) {
    CAPTURE(name);
    std::vector<Layout> all;
    for (const int ranks : rank_counts) {
      for (const Layout& layout : all_layouts(model, ranks)) all.push_back(layout);
    }
    for (const Layout& layout : choose(all)) {
      Deck deck = layout.apply(model);
      deck.precision.compute = Compute::bf16;
      const std::string text = layout_text(deck, Topology(deck, layout.ranks));
      CAPTURE(text);
      CHECK_NOTHROW(check(deck, layout.ranks));
      ++looked_at;
    }
  }
  MESSAGE(looked_at << " layouts");
}

}  // namespace llmtrain
