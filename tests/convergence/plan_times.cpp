// SPDX-License-Identifier: Apache-2.0
/// The time model: costs by formula, what overlaps with what, pipelines of stages that take longer, hardware files.
#include <doctest/doctest.h>

#include <cmath>
#include <map>

#include "llmtrain/driver/dry_run.hpp"
#include "llmtrain/plan/layout.hpp"
#include "llmtrain/plan/stream_clock.hpp"
#include "support/scratch_folder.hpp"

using namespace llmtrain;

namespace {

Hardware round_numbers() {
  Hardware h = find_hardware("h200");
  h.gemm = {{1e12, 1e12, 1e12}, 0, 0};
  h.bandwidth = 1e12;
  h.efficiency = {{"default", 1.0}};
  h.launch = 0;
  h.inside = {1e-6, 1e11};
  h.across = {2e-6, 1e10};
  h.overlap = 1;
  h.copies = {};
  return h;
}

Tensor fp32(std::int64_t rows, std::int64_t cols) { return Tensor::dense(nullptr, DType::fp32, {rows, cols}); }

double batch_of(const Hardware& h, const GroupPlacement& placement, const char* name, Tensor tensor, int peer = 0) {
  const CollectiveNote note{name, tensor, tensor, peer};
  return batch_seconds(h, placement, std::span(&note, 1)).batch;
}

Deck small_deck() {
  Deck deck;
  deck.model.layers = 4;
  deck.model.hidden = 256;
  deck.model.heads = 4;
  deck.model.kv_heads = 4;
  deck.model.head_dim = 64;
  deck.model.ffn = 512;
  deck.model.seq_len = 256;
  deck.model.vocab = 512;
  deck.model.vocab_multiple = 128;
  deck.schedule.micro_batch = 1;
  deck.schedule.global_batch = 64;
  return deck;
}

}  // namespace

TEST_CASE("costs: matrix products by shape, everything else by bytes, collectives by what a ring sends") {
  Hardware h = round_numbers();
  const Tensor d = fp32(100, 200), a = fp32(100, 50), b = fp32(50, 200);
  const OpNote gemm{"gemm", {}, std::span(&d, 1), std::span(&a, 1), 2.0 * 100 * 200 * 50};
  CHECK(operation_seconds(h, gemm) == doctest::Approx(2e6 / 1e12));
  h.gemm.side = 100;
  h.gemm.depth = 50;
  CHECK(operation_seconds(h, gemm) == doctest::Approx(2e-6 * (1 + 1 + 0.5 + 1)));
  const OpNote copy{"copy", {}, std::span(&a, 1), std::span(&b, 1)};
  CHECK(operation_seconds(h, copy) == doctest::Approx((100 * 50 + 50 * 200) * 4 / 1e12));
  h.efficiency["copy"] = 0.5;
  CHECK(operation_seconds(h, copy) == doctest::Approx((100 * 50 + 50 * 200) * 8 / 1e12));

  const Tensor many = fp32(1000, 1000);
  CHECK(batch_of(h, {4, 1, 4}, "all_gather", many) == doctest::Approx(3e6 / 1e11 + 2e-6));
  CHECK(batch_of(h, {4, 1, 4}, "all_reduce", many) == doctest::Approx(6e6 / 1e11 + 2e-6));
  CHECK(batch_of(h, {4, 4, 1}, "all_gather", many) == doctest::Approx(3e6 / 1e10 + 4e-6));  // one link out of each node
  CHECK(batch_of(h, {16, 2, 8}, "all_gather", many) == doctest::Approx(3.75e6 / 8e10 + 8e-6));  // eight of them
  CHECK(batch_of(h, {1, 1, 1}, "all_reduce", many) == 0);
  // Copy engines take shifts and large gathers within a node.
  h.copies = {5e-6, 2e11, 0.75};
  CHECK(batch_of(h, {4, 1, 4}, "shift", many) == doctest::Approx(4e6 / 2e11 + 5e-6));
  CHECK(batch_of(h, {4, 1, 4}, "all_gather", many) == doctest::Approx(3e6 / 2e11 + 5e-6));
  CHECK(batch_of(h, {4, 1, 4}, "all_gather", fp32(10, 10)) == doctest::Approx(300 / 1e11 + 2e-6));
  CHECK(batch_of(h, {4, 1, 4}, "all_reduce", many) == doctest::Approx(6e6 / 1e11 + 2e-6));
  // Else each member sends over its own link, and the one whose partner is on another node ends last.
  CHECK(batch_of(h, {4, 4, 1}, "shift", many, 1) == doctest::Approx(4e6 / 1e10 + 2e-6));
  CHECK(batch_of(h, {8, 2, 4}, "shift", many, 1) == doctest::Approx(4e6 / 1e10 + 2e-6));
  CHECK(batch_of(h, {8, 1, 8}, "shift", many, 1) == doctest::Approx(4e6 / 2e11 + 5e-6));
  const std::vector<CollectiveNote> exchange{
      {"shift", many, many, 1}, {"shift", many, many, 2}, {"shift", many, many, 3}};
  CHECK(batch_seconds(h, {4, 2, 2}, exchange).batch == doctest::Approx(8e6 / 1e10 + 2e-6));
  h.copies = {};
  CHECK(batch_seconds(h, {4, 1, 4}, exchange).batch == doctest::Approx(12e6 / 1e11 + 1e-6));
  h.copies = {5e-6, 2e11, 0.75};
  // Small gathers go where large ones of their batch go.
  const std::vector<CollectiveNote> gathers{{"all_gather", fp32(10, 10), fp32(5, 5)}, {"all_gather", many, many}};
  CHECK(batch_seconds(h, {4, 1, 4}, gathers).batch == doctest::Approx(3e6 / 2e11 + 300 / 2e11 + 5e-6));
  const CollectiveNote shift{"shift", many, many};
  CHECK(batch_seconds(h, {4, 1, 4}, std::span(&shift, 1)).felt == doctest::Approx(0.25 * 25e-6));
  CHECK(batch_seconds(h, {4, 4, 1}, std::span(&shift, 1)).felt == 0);  // round_numbers() hides all of it
  const std::vector<int> ranks{0, 1, 8, 9, 10};
  const GroupPlacement placed = place_group(ranks, 8);
  CHECK((placed.size == 5 && placed.nodes == 2 && placed.fewest_on_node == 2));
}

TEST_CASE("clocks: a batch beside computation is hidden until somebody waits for it") {
  const Hardware h = round_numbers();
  const std::unique_ptr<Device> device = make_trace_device(DeviceKind::cuda);
  StreamClock clock(h);
  const Stream stream = device->make_stream("compute");
  const Tensor big = fp32(1000, 1000);  // 8 us to copy
  const Group group{"shard", 0, {0, 1}, {}};
  const CollectiveNote note{"all_gather", big, big};  // 2 MB sent at 0.1 TB/s, and 1 us: 21 us
  const auto copy = [&] { clock.on_operation({"copy", stream, std::span(&big, 1), std::span(&big, 1)}); };
  const Event ready{device.get(), 1}, done{device.get(), 2};
  copy();
  clock.on_record(stream, ready);
  clock.on_batch({&group, std::span(&note, 1), ready, done});
  copy();
  CHECK(clock.now(stream) == doctest::Approx(16e-6));
  clock.on_wait(stream, done);
  CHECK(clock.now(stream) == doctest::Approx(29e-6));
  CHECK(clock.by_group().at("shard") == doctest::Approx(21e-6));
  CHECK(clock.exposed().at("shard") == doctest::Approx(13e-6));
  clock.on_wait(stream, done);
  CHECK(clock.exposed().at("shard") == doctest::Approx(13e-6));  // waited for before
  CHECK(clock.by_operation().at("copy") == doctest::Approx(16e-6));
}

TEST_CASE("a pipeline whose stages take other times than the unit ones") {
  const auto schedules = make_schedules(ScheduleKind::one_f_one_b, 2, 3, 1);
  const auto work = [](int stage, const Action& action) -> std::int64_t {
    return (action.kind == Action::Kind::forward ? 10 : 20) * (stage + 1);
  };
  const auto transfer = [](int) -> std::int64_t { return 1; };
  const Simulation found = simulate(schedules, {work, transfer});
  // The second stage is the slower one: it starts after a forward and a transfer, never waits, and the first ends after it.
  CHECK(found.work[1].front().begin == 11);
  CHECK(found.work[1].back().end == 11 + 3 * 60);
  CHECK(found.ticks == 11 + 3 * 60 + 1 + 20);
  CHECK(simulate(schedules).ticks == 12);
}

TEST_CASE("predictions move as they must") {
  const Deck deck = small_deck();
  const auto seconds = [&](const Deck& d, int ranks, const Hardware& h) {
    return plan_layout(d, ranks, h, PlanDepth::rank).times.seconds;
  };
  Hardware h = find_hardware("h100-80g");
  const double one = seconds(deck, 1, h);
  SUBCASE("micro-batches cost alike") {
    Deck twice = deck;
    twice.schedule.global_batch *= 2;
    const double update = plan_layout(deck, 1, h, PlanDepth::rank).classes[0].work.tail;
    CHECK(seconds(twice, 1, h) - update == doctest::Approx(2 * (one - update)).epsilon(1e-3));
  }
  SUBCASE("everything twice as fast") {
    h.launch /= 2;
    h.bandwidth *= 2;
    h.gemm.rate.bf16 *= 2;
    h.attention_forward.rate.bf16 *= 2;
    h.attention_backward.rate.bf16 *= 2;
    CHECK(seconds(deck, 1, h) == doctest::Approx(one / 2));
  }
  SUBCASE("a slow network is felt, and recompute takes time") {
    Deck sharded = deck;
    sharded.parallel.zero = 3;
    sharded.parallel.persistence = 0;
    h.ranks_a_node = 1;
    const double fast = seconds(sharded, 4, h);
    h.across.bandwidth /= 100;
    CHECK(seconds(sharded, 4, h) > 2 * fast);
    Deck again = deck;
    again.schedule.recompute = Recompute::block;
    CHECK(seconds(again, 1, h) > 1.1 * one);
  }
  SUBCASE("the bubble of 1F1B") {
    Deck piped = deck;
    piped.parallel.pipeline = 4;
    piped.parallel.zero = 0;
    piped.schedule.global_batch = 12;
    const double bubble = plan_layout(piped, 4, h, PlanDepth::rank).times.bubble;
    CHECK(bubble > 3.0 / 15);  // (stages - 1) / (micro-batches + stages - 1), were all stages alike
    CHECK(bubble < 0.5);
  }
}

TEST_CASE("a pipeline of many micro-batches goes on as it has begun, also where its stages are not alike") {
  Hardware h = find_hardware("h100-80g");
  for (const auto& [kind, chunks] : {std::pair(ScheduleKind::one_f_one_b, 1), std::pair(ScheduleKind::gpipe, 1),
                                     std::pair(ScheduleKind::interleaved, 2)}) {
    Deck deck = small_deck();
    deck.model.layers = 8;
    deck.parallel.pipeline = 4;
    deck.parallel.zero = 0;
    deck.schedule.kind = kind;
    deck.schedule.chunks = chunks;
    if (chunks == 1) deck.parallel.stage_layers = {1, 3, 2, 2};
    deck.schedule.global_batch = 400;
    const Topology topology(deck, 4);
    const PlanTarget target{deck, topology, h};
    std::vector<StageWork> works;
    for (int stage = 0; stage < 4; ++stage) works.push_back(trace_stage(target, rank_of_stage(topology, stage), {}));
    std::vector<const StageWork*> stages;
    for (const StageWork& work : works) stages.push_back(&work);
    const StepTimes times = pipeline_times(target, stages);
    // All of its actions put together, one by one.
    const Stretch stretch = stretch_of(deck, topology);
    std::map<std::pair<int, bool>, std::int64_t> issued;
    const auto work = [&](int stage, const Action& action) {
      const StageWork& w = works[static_cast<std::size_t>(stage)];
      const bool forward = action.kind == Action::Kind::forward;
      const std::int64_t k = issued[{stage, forward}]++;
      return std::llround(1e9 * stretch.at(forward ? w.forwards : w.backwards, k, chunks));
    };
    const double bytes = 2.0 * 256 * 256;
    const double copy =
        h.copies.latency + bytes / h.copies.bandwidth;  // into the receiver's staging memory, and out of it
    const auto transfer = [&](int) { return std::llround(1e9 * (2 * copy)); };
    const Simulation whole = simulate(make_schedules(kind, 4, 400, chunks), {work, transfer});
    CHECK(times.bubble == doctest::Approx(whole.idle()).epsilon(1e-3));
    const double tails = works[0].tail;  // of like size on all stages
    CHECK(times.seconds == doctest::Approx(static_cast<double>(whole.ticks) / 1e9 + tails).epsilon(2e-3));
  }
}

TEST_CASE("hardware files read back as they were written; the built-in table is complete") {
  const ScratchFolder folder;
  for (const std::string& name : hardware_names()) {
    const Hardware h = find_hardware(name);
    CHECK((h.bandwidth > 0 && h.gemm.rate.fp32 > 0 && h.attention_backward.rate.fp32 > 0 && !h.source.empty()));
    const std::string path = folder.path() + "/" + name;
    std::FILE* const file = std::fopen(path.c_str(), "w");
    std::fputs(to_yaml(h).c_str(), file);
    std::fclose(file);
    CHECK(to_yaml(read_hardware(path)) == to_yaml(h));
  }
  CHECK_THROWS_WITH_AS(find_hardware("h100"), doctest::Contains("did you mean"), Error);
}
