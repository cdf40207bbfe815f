// SPDX-License-Identifier: Apache-2.0
// ranks: 8
// timeout: 900
/// Random small decks in random layouts against one rank in fp64: gradients of step 1, three steps of loss and weights.
/// FUZZ_SEED and FUZZ_CASES in the environment choose which cases run (default: 200 from seed 1).
#include <numeric>

#include "llmtrain/backend/trace.hpp"
#include "llmtrain/config/dump.hpp"
#include "llmtrain/driver/step.hpp"
#include "support/layouts.hpp"

using namespace llmtrain;

namespace {

/// Draws from a seed; the same on every rank.
class Draw {
 public:
  explicit Draw(std::uint64_t seed) : random_(seed * 0x9e3779b97f4a7c15ULL) {}
  std::int64_t below(std::int64_t n) { return static_cast<std::int64_t>(random_() % static_cast<std::uint64_t>(n)); }
  bool chance(int percent) { return below(100) < percent; }
  template <class T>
  T of(std::initializer_list<T> values) {
    return values.begin()[below(static_cast<std::int64_t>(values.size()))];
  }
  int divisor_of(int n) {
    int d = 0;
    do d = 1 + static_cast<int>(below(n));
    while (n % d != 0);
    return d;
  }

 private:
  std::mt19937_64 random_;
};

struct Case {
  Deck deck;
  int ranks = 1;
  std::int32_t masked = LoaderShape::no_token;
};

void draw_layout(Draw& draw, Case& out) {
  ParallelConfig& p = out.deck.parallel;
  ScheduleConfig& s = out.deck.schedule;
  out.ranks = draw.of({1, 2, 2, 3, 4, 4, 6, 8, 8});
  p.tensor = draw.chance(15) ? 1 : draw.divisor_of(out.ranks);
  p.pipeline = draw.chance(30) ? 1 : draw.divisor_of(out.ranks / p.tensor);
  const int data = out.ranks / (p.tensor * p.pipeline);
  p.shard = draw.chance(30) ? 0 : draw.divisor_of(data);
  p.sequence = draw.chance(80);
  p.zero = static_cast<int>(draw.below(4));
  p.order = draw.of({RankOrder::tp_dp_pp, RankOrder::tp_pp_dp});
  p.prefetch = draw.of<std::int64_t>({0, 300, 5000, 50'000'000});
  p.persistence = draw.of<std::int64_t>({0, 0, 40, 100'000});
  p.max_live = draw.of<std::int64_t>({1, 3000, 1'000'000'000});
  p.bucket = draw.of<std::int64_t>({100, 1000, 500'000'000});
  p.exchange = draw.of({1, 2, 8});
  if (draw.chance(20)) p.whole_gradients.emplace_back("embedding");
  if (draw.chance(20)) p.whole_gradients.emplace_back("head");
  s.kind = draw.of({ScheduleKind::gpipe, ScheduleKind::one_f_one_b, ScheduleKind::interleaved});
  if (s.kind == ScheduleKind::interleaved) s.chunks = draw.of({1, 2, 2, 3});
  s.micro_batch = 1 + draw.below(3);
  s.global_batch = s.micro_batch * data * (1 + draw.below(5)) * (draw.chance(50) ? p.pipeline : 1);
  s.recompute = draw.of({Recompute::none, Recompute::selective, Recompute::block});
  s.recompute_modules.clear();
  for (const char* module : {"norm", "activation", "attention", "mlp"}) {
    if (draw.chance(50)) s.recompute_modules.emplace_back(module);
  }
}

void draw_model(Draw& draw, Case& out) {
  ModelConfig& m = out.deck.model;
  ParallelConfig& p = out.deck.parallel;
  const std::int64_t tensor = p.tensor, stages = static_cast<std::int64_t>(p.pipeline) * out.deck.schedule.chunks;
  m.layers = stages + draw.below(4);
  m.heads = tensor * (1 + draw.below(3));
  m.kv_heads = draw.divisor_of(static_cast<int>(m.heads));
  m.head_dim = draw.of({2, 4, 6, 8});
  m.hidden = draw.of({12, 16, 20, 27, 32});
  m.ffn = tensor * (3 + draw.below(12));
  m.seq_len = 3 + draw.below(10);
  m.vocab = draw.of({29, 61, 96, 130, 257});
  m.vocab_multiple = draw.of({1, 8, 16, 64});
  m.tied = draw.chance(50);
  m.dropout = draw.chance(40) ? 0.15 : 0;
  m.init_std = 0.15;
  m.norm_eps = draw.of({1e-5, 1e-3});
  if (draw.chance(40)) {
    m.family = Family::gpt;
    m.activation = draw.of({Activation::gelu, Activation::gelu_tanh});
    m.positions = Positions::learned;
    m.qkv_bias = true;
  } else {
    m.qkv_bias = draw.chance(40);
    m.qk_norm = draw.chance(40) && m.head_dim > 2;  // a norm of two elements magnifies rounding where both are small
    m.rope.theta = draw.of({100.0, 500000.0});
    if (draw.chance(30)) m.rope.scaling = {4, 1, 4, 8};
  }
  p.count_embedding = draw.chance(20);
  p.count_head = draw.chance(20);
  if (!draw.chance(25)) return;
  p.stage_layers.assign(static_cast<std::size_t>(stages), 1);
  for (std::int64_t left = m.layers - stages; left > 0; --left) {
    ++p.stage_layers[static_cast<std::size_t>(draw.below(stages))];
  }
}

/// The first deck of this seed that the rules allow.
Case draw_case(std::uint64_t seed) {
  Draw draw(seed);
  for (;;) {
    Case out;
    draw_layout(draw, out);
    draw_model(draw, out);
    Deck& deck = out.deck;
    deck.run.seed = 1 + draw.below(1000);
    deck.precision.compute = Compute::fp64;
    deck.optimizer.lr = 1e-2;
    deck.optimizer.min_lr = 1e-3;
    deck.optimizer.warmup_steps = draw.of({0, 2});
    deck.optimizer.clip = draw.of({0.0, 0.05, 1.0});
    deck.run.steps = 3;
    deck.data.seed = 5;
    deck.data.samples = 3 * deck.schedule.global_batch;
    deck.data.train = {{"random ids", 0}};
    if (draw.chance(30)) out.masked = static_cast<std::int32_t>(draw.below(8));
    if (fits(deck, out.ranks)) return out;
  }
}

/// Which kinds of layouts were drawn: a fuzzer that never draws one would prove nothing of it.
struct Drawn {
  int tensor = 0, replicated_kv = 0, sequence = 0, pipeline = 0, tied_pipeline = 0, interleaved = 0, uneven = 0,
      hybrid = 0;
  std::array<int, 4> zero{};

  void add(const Case& c) {
    const ParallelConfig& p = c.deck.parallel;
    const int data = c.ranks / (p.tensor * p.pipeline);
    tensor += p.tensor > 1;
    replicated_kv += p.tensor > c.deck.model.kv_heads;
    sequence += p.tensor > 1 && p.sequence;
    pipeline += p.pipeline > 1;
    tied_pipeline += p.pipeline > 1 && c.deck.model.tied;
    interleaved += c.deck.schedule.chunks > 1;
    uneven += p.pipeline > 1 && c.deck.model.layers % (p.pipeline * c.deck.schedule.chunks) != 0;
    hybrid += p.shard > 1 && p.shard < data;
    zero[static_cast<std::size_t>(p.zero)] += data > 1;
  }
  bool all_kinds() const {
    return tensor > 0 && replicated_kv > 0 && sequence > 0 && pipeline > 0 && tied_pipeline > 0 && interleaved > 0 &&
           uneven > 0 && hybrid > 0 && *std::min_element(zero.begin(), zero.end()) > 0;
  }
  std::string text() const {
    return fmt::format(
        "tensor {}, of these with sequence {} and replicated K and V {}; pipeline {}, of these tied {}, interleaved {} "
        "and uneven {}; shard below data {}; ZeRO over several ranks {} {} {} {}",
        tensor, sequence, replicated_kv, pipeline, tied_pipeline, interleaved, uneven, hybrid, zero[0], zero[1],
        zero[2], zero[3]);
  }
};

/// True if a step of this rank gathers every storage tensor: what is counted as ZeRO-3 must be it.
bool gathers_all_weights(const Deck& deck, int ranks, int rank) {
  const std::unique_ptr<Device> device = make_trace_device(DeviceKind::cpu);
  Parts parts(deck, {Topology(deck, ranks), rank, MpiComm{}}, *device, 0);
  TraceRecorder trace(true);
  device->set_observer(&trace);
  Timers timers;
  run_step(
      parts, {}, [](std::int64_t, const Batch&) {}, timers);
  device->set_observer(nullptr);
  std::map<std::int64_t, std::int64_t> missing;  // gathers of each size
  for (const StorageLayout& layout : parts.shape.layouts) ++missing[layout.padded];
  for (const TraceRecorder::Note& note : trace.notes()) {
    if (note.name == "all_gather" && note.group == "shard") --missing[note.writes.front().numel()];
  }
  return std::all_of(missing.begin(), missing.end(), [](const auto& entry) { return entry.second <= 0; });
}

void check_case(LayoutJob& job, const Case& c) {
  constexpr int steps = 3;
  const LayoutNumbers reference = job.run(serial(c.deck), 1, steps, c.masked);
  const LayoutNumbers numbers = job.run(c.deck, c.ranks, steps, c.masked);
  job.check_agreement(numbers, reference, Agreement::bound);
  if (c.deck.parallel.zero != 3) return;
  Deck deck = c.deck;
  for (const std::int64_t persistence : {std::int64_t{0}, ParallelConfig{}.persistence}) {
    deck.parallel.persistence = persistence;
    job.check_agreement(job.run(deck, c.ranks, steps, c.masked), numbers, Agreement::bits);
  }
  deck.parallel.persistence = 0;
  deck.parallel.bucket = ParallelConfig{}.bucket;
  if (Topology(deck, c.ranks).size(Axis::shard) > 1 && job.world.rank() < c.ranks) {
    CHECK(gathers_all_weights(deck, c.ranks, job.world.rank()));
  }
}

}  // namespace

TEST_CASE("random decks in random layouts agree with one rank") {
  LayoutJob job;
  const auto first = static_cast<std::uint64_t>(from_environment("FUZZ_SEED", 1));
  const auto cases = static_cast<std::uint64_t>(from_environment("FUZZ_CASES", 200));
  Drawn drawn;
  for (std::uint64_t seed = first; seed < first + cases; ++seed) {
    const Case c = draw_case(seed);
    drawn.add(c);
    if (job.world.rank() == 0) {
      std::printf("seed %llu: %s\n", static_cast<unsigned long long>(seed),
                  layout_text(c.deck, Topology(c.deck, c.ranks)).c_str());
      std::fflush(stdout);
    }
    const std::string reproduce =
        fmt::format("FUZZ_SEED={} FUZZ_CASES=1, mask {}\n{}", seed, c.masked, to_yaml(c.deck));
    INFO(reproduce);
    check_case(job, c);
  }
  CHECK((cases < 100 || drawn.all_kinds()));
  if (job.world.rank() == 0) std::printf("%s\n%s\n", drawn.text().c_str(), job.worst().c_str());
}
