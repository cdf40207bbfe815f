// SPDX-License-Identifier: Apache-2.0
/// Plans are what is run: predicted bytes are the allocated ones on every rank, and a step stretched from a few
/// micro-batches is the whole step.
#include "llmtrain/plan/layout.hpp"

#include "llmtrain/backend/trace.hpp"
#include "llmtrain/driver/step.hpp"
#include "support/layout_matrix.hpp"

using namespace llmtrain;

namespace {

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

const RankClass& class_of(const LayoutPlan& plan, int rank) {
  const int stage = plan.topology().coordinates(rank).pp;
  for (const RankClass& c : plan.classes) {
    if (std::find(c.stages.begin(), c.stages.end(), stage) != c.stages.end()) return c;
  }
  FAIL("no class holds stage ", stage);
  return plan.classes.front();
}

/// Bytes that every rank of a run allocates against those of the plan.
void check_allocations(const Deck& deck, int ranks) {
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

/// All that a rank does in a step after the first one, traced from its beginning to its end.
TraceRecorder whole_step(const Deck& deck, const Topology& topology, int rank) {
  const std::unique_ptr<Device> device = make_trace_device(DeviceKind::cpu);
  Parts parts(deck, {topology, rank, MpiComm{}}, *device, 0);
  TraceRecorder recorder;
  Timers timers;
  for (int step = 0; step < 2; ++step) {
    recorder.clear();
    device->set_observer(&recorder);
    run_step(
        parts, StepInputs{}, [](std::int64_t, const Batch&) {}, timers);
    device->set_observer(nullptr);
  }
  return recorder;
}

}  // namespace

TEST_CASE("predicted bytes are the allocated ones on every rank of every kind of layout") {
  for (const auto& [name, model] : matrix_models()) {
    CAPTURE(name);
    std::vector<Layout> all;
    for (const int ranks : {1, 2, 3, 4, 6, 8}) {
      for (const Layout& layout : all_layouts(model, ranks)) all.push_back(layout);
    }
    for (const Layout& layout : pairwise_cover(all)) {
      Deck deck = layout.apply(model);
      deck.precision.compute = Compute::bf16;
      const std::string text = layout_text(deck, Topology(deck, layout.ranks));
      CAPTURE(text);
      check_allocations(deck, layout.ranks);
    }
  }
}

TEST_CASE("a step stretched from a few micro-batches is the whole step") {
  const Deck model = matrix_models().front().deck;
  for (const auto& [kind, chunks] : {std::pair(ScheduleKind::one_f_one_b, 1), std::pair(ScheduleKind::gpipe, 1),
                                     std::pair(ScheduleKind::interleaved, 2)}) {
    for (int zero = 0; zero <= 3; ++zero) {
      CAPTURE(zero);
      Deck deck = model;
      deck.parallel.tensor = 2;
      deck.parallel.pipeline = 2;
      deck.parallel.zero = zero;
      deck.parallel.persistence = 0;
      deck.schedule.kind = kind;
      deck.schedule.chunks = chunks;
      deck.schedule.micro_batch = 1;
      deck.schedule.global_batch = 2 * 40;
      const Topology topology(deck, 8);
      CHECK(stretch_of(deck.schedule, 2, 40).more() > 0);
      const LayoutPlan plan = plan_layout(deck, 8, find_hardware("cpu"), PlanDepth::whole);
      for (const int rank : {rank_of_stage(topology, 0), rank_of_stage(topology, 1)}) {
        const TraceRecorder whole = whole_step(deck, topology, rank);
        const StageWork& work = class_of(plan, rank).work;
        CHECK(work.flops == whole.flops());
        CHECK(work.collectives.size() == whole.collectives().size());
        for (const auto& [key, total] : whole.collectives()) {
          CAPTURE(key.first);
          CHECK(work.collectives.at(key).calls == total.calls);
          CHECK(work.collectives.at(key).bytes == total.bytes);
        }
      }
    }
  }
}

TEST_CASE("ZeRO's formulas hold for 70B, padding aside") {
  Deck deck;
  ModelConfig& m = deck.model;
  m.layers = 80;
  m.hidden = 8192;
  m.heads = 64;
  m.kv_heads = 8;
  m.head_dim = 128;
  m.ffn = 28672;
  m.seq_len = 8192;
  m.vocab = 128256;
  m.vocab_multiple = 128;
  deck.parallel.persistence = 0;
  deck.schedule.micro_batch = 1;
  deck.schedule.global_batch = 64;
  const double n = 70'553'706'496;
  const auto static_bytes = [&](int zero, Storage16 gradients) {
    deck.parallel.zero = zero;
    deck.precision.gradients = gradients;
    return static_cast<double>(
        plan_layout(deck, 64, find_hardware("h100-80g"), PlanDepth::fit).classes[0].static_bytes());
  };
  for (const auto& [gradients, size] : {std::pair(Storage16::fp32, 4.0), std::pair(Storage16::bf16, 2.0)}) {
    CAPTURE(size);
    const double expected[] = {n * (2 + size + 12), n * (2 + size + 12.0 / 64), n * (2 + (size + 12) / 64),
                               n * (2 + size + 12) / 64};
    for (int zero = 0; zero <= 3; ++zero) {
      CAPTURE(zero);
      const double bytes = static_bytes(zero, gradients);
      CHECK(bytes >= expected[zero]);
      CHECK(bytes == doctest::Approx(expected[zero]).epsilon(3e-4));
    }
  }
  // A round 70e9: 1.120e12 bytes in all and 17.5e9 a rank, with fp32 gradients 1.260e12 and 19.69e9.
  const double share = 70e9 / n;
  CHECK(static_bytes(0, Storage16::bf16) * share == doctest::Approx(1.120e12).epsilon(1e-3));
  CHECK(static_bytes(3, Storage16::bf16) * share == doctest::Approx(17.50e9).epsilon(1e-3));
  CHECK(static_bytes(0, Storage16::fp32) * share == doctest::Approx(1.260e12).epsilon(1e-3));
  CHECK(static_bytes(3, Storage16::fp32) * share == doctest::Approx(19.69e9).epsilon(1e-3));
}
