// SPDX-License-Identifier: Apache-2.0
/// Plans are what is run: predicted bytes are the allocated ones on every rank, and a step stretched from a few
/// micro-batches is the whole step.
#include "llmtrain/plan/report.hpp"
#include "llmtrain/plan/search.hpp"
#include "support/layout_traces.hpp"
#include "support/small_deck.hpp"

using namespace llmtrain;

namespace {

/// All that a rank does in a step after the first one, traced from its beginning to its end.
TraceRecorder whole_step(const Deck& deck, const Topology& topology, int rank) {
  DryRank dry(deck, topology, rank, DeviceKind::cpu, micro_batches_of(deck, topology));
  TraceRecorder recorder;
  dry.step(recorder);
  return recorder;
}

Deck sharded_deck() {
  Deck deck = matrix_models().front().deck;
  deck.parallel.zero = 2;
  deck.schedule.micro_batch = 1;
  deck.schedule.global_batch = 8;
  return deck;
}

}  // namespace

TEST_CASE("predicted bytes are the allocated ones on every rank of every kind of layout") {
  check_matrix({1, 2, 3, 4, 6, 8}, pairwise_cover, check_allocations);
}

TEST_CASE("with linear layers in fp8 too, with and without copies that are kept, and in their rate") {
  Deck deck = small_fp8_deck(3, 2, false);
  deck.schedule.micro_batch = 2;
  deck.schedule.global_batch = 8;
  for (const auto& [tensor, pipeline, zero] : {std::tuple(1, 1, 1), {2, 1, 1}, {1, 2, 0}, {1, 1, 3}, {2, 2, 2}}) {
    deck.parallel.tensor = tensor;
    deck.parallel.pipeline = pipeline;
    deck.parallel.zero = zero;
    for (const bool keep : {false, true}) {
      CAPTURE(keep);
      deck.precision.keep_fp8 = keep;
      check_allocations(deck, 4);
      check_traces(deck, 4);
    }
  }
  deck.precision.keep_fp8 = false;
  Hardware fast = find_hardware("h200");
  fast.gemm.rate.fp8 *= 2;
  const auto seconds = [&](const Hardware& hardware) {
    return plan_layout(deck, 4, hardware, PlanDepth::whole).times.seconds;
  };
  CHECK(seconds(fast) < seconds(find_hardware("h200")));
  CHECK_THROWS_AS(seconds(find_hardware("a100-80g")), Error);  // multiplies no fp8
  deck.parallel.zero = 1;
  deck.parallel.tensor = deck.parallel.pipeline = 1;
  const auto named = [&](const Hardware& hardware) {
    return faster(plan_layout(deck, 4, hardware, PlanDepth::whole)).find("precision.keep_fp8=true") !=
           std::string::npos;
  };
  CHECK(named(find_hardware("h200")));
  deck.precision.keep_fp8 = true;
  CHECK_FALSE(named(find_hardware("h200")));
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
      CHECK(stretch_of(deck, topology).more() > 0);
      const LayoutPlan plan = plan_layout(deck, 8, find_hardware("cpu"), PlanDepth::whole);
      for (const int rank : {rank_of_stage(topology, 0), rank_of_stage(topology, 1)}) {
        const TraceRecorder whole = whole_step(deck, topology, rank);
        const StageWork& work = class_of(plan, rank).work;
        CHECK(work.flops == whole.flops());
        const TraceRecorder measured = measure(deck, topology, rank, DeviceKind::cpu).trace;
        CHECK(measured.table() == whole.table());
        CHECK(measured.batches() == whole.batches());
        const auto leaves = [](const auto& item) { return item.first.second != "copy"; };  // the rank
        CHECK(std::ssize(work.collectives) == std::ranges::count_if(whole.collectives(), leaves));
        for (const auto& [key, total] : whole.collectives()) {
          CAPTURE(key.first);
          if (key.second == "copy") continue;
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

TEST_CASE("where an exchange of gradients takes too much memory, a reduce-scatter is proposed") {
  Deck deck = sharded_deck();
  Hardware hardware = find_hardware("h200");
  const auto plan_of = [&] { return plan_layout(deck, 4, hardware, PlanDepth::fit); };
  const std::int64_t more = plan_of().largest().peak_bytes();
  deck.parallel.exchange = 3;
  const std::int64_t less = plan_of().largest().peak_bytes();
  CHECK(less < more);
  deck.parallel.exchange = 4;
  hardware.memory = static_cast<double>(less + more) / 2;
  hardware.reserved = 0;
  const LayoutPlan plan = plan_of();
  CHECK_FALSE(plan.fits);
  CHECK(remedies(plan).find("  parallel.exchange=1 ") != std::string::npos);
  hardware.memory = static_cast<double>(less) - 1;
  CHECK(remedies(plan_of()).find("  parallel.exchange=1 ") == std::string::npos);
}

TEST_CASE("gradients are exchanged within a node, and reduce-scattered where the group leaves it") {
  Deck deck = sharded_deck();
  Hardware hardware = find_hardware("h200");
  const auto collectives = [&](int ranks_a_node) {
    hardware.ranks_a_node = ranks_a_node;
    std::set<std::string> names;
    const LayoutPlan plan = plan_layout(deck, 4, hardware, PlanDepth::whole);
    for (const auto& [key, total] : plan.classes.front().work.collectives) {
      if (key.first == "shard") names.insert(key.second);
    }
    return names;
  };
  CHECK(collectives(4) == std::set<std::string>{"all_gather", "shift"});
  CHECK(collectives(2) == std::set<std::string>{"all_gather", "reduce_scatter"});
  deck.parallel.shard = 2;
  CHECK(collectives(2) == std::set<std::string>{"all_gather", "shift"});
  // Replicas of a chunk must issue the same: one group that leaves its node decides for all. The plan proves the order.
  deck.parallel.whole_gradients = {"embedding"};
  deck.schedule.global_batch = 12;
  hardware.ranks_a_node = 3;
  const LayoutPlan plan = plan_layout(deck, 12, hardware, PlanDepth::whole);
  CHECK(plan.classes.size() == 1);
  CHECK(plan.classes.front().work.collectives.count({"shard", "shift"}) == 0);
}

TEST_CASE("with one micro-batch a rank, a search also looks at ZeRO-2") {
  Deck deck = matrix_models().front().deck;
  deck.schedule.micro_batch = 1;
  const auto levels = [&](std::int64_t global_batch) {
    deck.schedule.global_batch = global_batch;
    std::set<int> found;
    const Search search = search_layouts(deck, 2, find_hardware("h200"));
    for (const Candidate& c : search.ranked) {
      if (c.deck.parallel.tensor * c.deck.parallel.pipeline == 1 && c.deck.schedule.micro_batch == 1) {
        found.insert(c.deck.parallel.zero);
      }
    }
    return found;
  };
  CHECK(levels(2) == std::set<int>{1, 2});
  CHECK(levels(8) == std::set<int>{1});
}

TEST_CASE("a search recomputes whole blocks where the deck names no module of one") {
  Deck deck = matrix_models().front().deck;
  deck.schedule.micro_batch = 1;
  deck.schedule.global_batch = 1;
  deck.schedule.recompute_modules.clear();
  Hardware hardware = find_hardware("h200");
  hardware.reserved = 0;
  const LayoutPlan kept = plan_layout(deck, 1, hardware, PlanDepth::fit);
  hardware.memory = static_cast<double>(kept.largest().peak_bytes()) - 1;
  const Search search = search_layouts(deck, 1, hardware);
  CHECK(search.ranked.size() == 1);
  CHECK(search.ranked.at(0).deck.schedule.recompute == Recompute::block);
}

TEST_CASE("a search knows what 16-bit gradients and moments save before it plans") {
  Deck deck = matrix_models().front().deck;
  deck.precision.gradients = deck.precision.moments = Storage16::bf16;
  deck.schedule.micro_batch = 1;
  deck.schedule.global_batch = 8;
  Hardware hardware = find_hardware("h200");
  hardware.reserved = 0;
  for (const int zero : {1, 2, 3}) {
    CAPTURE(zero);
    deck.parallel.zero = zero;
    hardware.memory = static_cast<double>(plan_layout(deck, 4, hardware, PlanDepth::fit).largest().peak_bytes());
    bool found = false;
    const Search search = search_layouts(deck, 4, hardware);
    for (const Candidate& c : search.ranked) {
      const ParallelConfig& p = c.deck.parallel;
      found = found || (p.tensor * p.pipeline == 1 && p.zero <= zero && c.deck.schedule.micro_batch == 1);
    }
    CHECK(found);
  }
}

TEST_CASE("a search in fp8 keeps copies of weights where that is faster and they fit, whatever the deck says") {
  Deck deck = matrix_models().front().deck;
  deck.model.hidden = 512;
  deck.model.ffn = 2048;
  deck.model.seq_len = 64;
  deck.precision.compute = Compute::bf16;
  deck.schedule.micro_batch = 1;
  deck.schedule.global_batch = 1;
  Hardware hardware = find_hardware("h200");
  hardware.reserved = 0;
  const auto found = [&](LinearProducts linear, bool keep) {
    deck.precision.linear = linear;
    deck.precision.keep_fp8 = keep;
    std::vector<bool> copies;
    for (const Candidate& c : search_layouts(deck, 1, hardware).ranked) copies.push_back(c.deck.precision.keep_fp8);
    return copies;
  };
  CHECK(found(LinearProducts::compute, false) == std::vector<bool>{false});
  CHECK(found(LinearProducts::fp8, false) == std::vector<bool>{true, false});
  CHECK(found(LinearProducts::fp8, true) == std::vector<bool>{true, false});
  deck.precision.keep_fp8 = false;
  hardware.memory = static_cast<double>(plan_layout(deck, 1, hardware, PlanDepth::fit).largest().peak_bytes());
  CHECK(found(LinearProducts::fp8, false) == std::vector<bool>{false});
}
