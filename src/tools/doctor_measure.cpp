// SPDX-License-Identifier: Apache-2.0
/// Products, copies, messages and collectives against the clock.
#include <algorithm>
#include <functional>
#include <numeric>
#include <set>

#include "llmtrain/backend/communicator.hpp"
#include "llmtrain/backend/kernels.hpp"
#include "llmtrain/backend/workspace.hpp"
#include "llmtrain/base/clock.hpp"
#include "llmtrain/base/host.hpp"
#include "llmtrain/base/median.hpp"
#include "llmtrain/memory/arena.hpp"
#include "llmtrain/parallel/groups.hpp"
#include "llmtrain/plan/costs.hpp"
#include "llmtrain/tools/doctor.hpp"

namespace llmtrain {

namespace {

/// Sides of the product and bytes of the copy: large enough for full speed, small enough for every machine.
struct Sizes {
  std::int64_t side, copied_bytes;
};
Sizes sizes_for(DeviceKind kind) {
  return kind == DeviceKind::cuda ? Sizes{8192, std::int64_t{1} << 30} : Sizes{1024, std::int64_t{1} << 27};
}

/// Goes in a row: so long, and at most so many.
constexpr double row_seconds = 20e-3, row_length = 20;

class Examiner {
 public:
  Examiner(const MpiComm& world, Device& device, int repeats)
      : world_(world), device_(device), stream_(device.make_stream("doctor")), repeats_(repeats) {}

  /// Median seconds of `work`, begun by all ranks together: of one go, or of one among many in a row, as a step has them.
  /// A first go is not counted.
  enum class Goes { alone, in_a_row };
  double seconds(const std::function<void(Stream)>& work, Goes goes = Goes::in_a_row) const {
    const auto time = [&](int count) {
      world_.barrier();
      const Stopwatch watch;
      for (int i = 0; i < count; ++i) work(stream_);
      stream_.synchronize();
      return watch.seconds() / count;
    };
    time(1);
    const auto fill_row = [&] { return std::clamp(row_seconds / std::max(time(1), 1e-9), 1.0, row_length); };
    const int count = goes == Goes::alone ? 1 : static_cast<int>(world_.all_reduce(fill_row(), MpiOp::min));
    std::vector<double> seconds;
    for (int i = 0; i < repeats_; ++i) seconds.push_back(time(count));
    return median(std::move(seconds));
  }

  /// Seconds of a batch of one communicator.
  double seconds(Communicator& communicator, const std::function<void(Communicator::Batch&)>& fill,
                 Goes goes = Goes::in_a_row) const {
    const auto submit = [&](Stream stream) {
      Communicator::Batch batch(communicator, stream.record());
      fill(batch);
      stream.wait(batch.submit());
    };
    return seconds(submit, goes);
  }

  void measure_rank(DType precision, RankHealth& rank) const;
  std::vector<PairHealth> measure_pairs(std::int64_t bytes) const;
  GroupHealth measure_group(const std::string& name, std::vector<int> members, std::int64_t bytes) const;

 private:
  /// A communicator with its memory, and two tensors for it.
  struct Line;

  const MpiComm& world_;
  Device& device_;
  Stream stream_;
  int repeats_;
};

struct Examiner::Line {
  Line(const Examiner& examiner, const std::string& name, std::vector<int> members, std::int64_t bytes)
      : Line(examiner, make_group(name, std::move(members), examiner.world_.rank(), examiner.world_), bytes,
             MemoryPlan()) {}

  Tensor sent, received;
  std::unique_ptr<Arena> arena;
  std::unique_ptr<Communicator> communicator;

 private:
  Line(const Examiner& examiner, const Group& group, std::int64_t bytes, MemoryPlan plan) {
    // Whole for every member, so that all_gather and reduce_scatter have equal parts.
    const std::int64_t count = bytes / size_of(DType::fp32) / group.size() * group.size();
    const std::int64_t staging = communicator_workspace(examiner.device_.kind(), group.size(), bytes);
    const Slot a = plan.request(Segment::comm, "sent", DType::fp32, {count});
    const Slot b = plan.request(Segment::comm, "received", DType::fp32, {count});
    const Slot workspace = plan.request(Segment::comm, "staging", DType::uint8, {std::max<std::int64_t>(staging, 1)});
    arena = std::make_unique<Arena>(examiner.device_, plan);
    sent = (*arena)[a];
    received = (*arena)[b];
    communicator = examiner.device_.make_communicator(group, (*arena)[workspace]);
  }
};

void Examiner::measure_rank(DType precision, RankHealth& rank) const {
  const auto [side, copied] = sizes_for(device_.kind());
  MemoryPlan plan;
  const std::int64_t temporary = std::max<std::int64_t>(kernels_workspace(device_.kind()), 1);
  const Slot workspace = plan.request(Segment::scratch, "workspace", DType::uint8, {temporary});
  const Slot a = plan.request(Segment::scratch, "a", precision, {side, side});
  const Slot b = plan.request(Segment::scratch, "b", precision, {side, side});
  const Slot d = plan.request(Segment::scratch, "d", precision, {side, side});
  const Slot source = plan.request(Segment::scratch, "source", DType::fp32, {copied / size_of(DType::fp32)});
  const Slot copy = plan.request(Segment::scratch, "copy", DType::fp32, {copied / size_of(DType::fp32)});
  const Arena arena(device_, plan);
  Kernels& kernels = device_.kernels();
  kernels.use_workspace(arena[workspace]);
  for (const Slot slot : {a, b}) kernels.init_normal(stream_, arena[slot], {1, 1}, {0, 0, side}, 1);
  const double product =
      seconds([&](Stream stream) { kernels.gemm(stream, GemmForm::nt, arena[d], arena[a], arena[b]); });
  const double moved = seconds([&](Stream stream) { kernels.copy(stream, arena[copy], arena[source]); });
  kernels.use_workspace({});
  const auto n = static_cast<double>(side);
  rank.product_rate = 2 * n * n * n / product;
  rank.copy_rate = 2 * static_cast<double>(copied) / moved;
}

/// Every rank meets every other once, in rounds of disjoint pairs (the circle method): one rank stays, the others turn.
std::vector<PairHealth> Examiner::measure_pairs(std::int64_t bytes) const {
  const int ranks = world_.size(), seats = ranks + ranks % 2, turning = seats - 1, self = world_.rank();
  if (ranks == 1) return {};
  std::vector<int> all(static_cast<std::size_t>(ranks));
  std::iota(all.begin(), all.end(), 0);
  const Line line(*this, "world", all, bytes);
  const auto partner = [&](int rank, int round) {
    if (rank == turning) return round;
    if (rank == round) return turning;
    return (2 * round - rank + 2 * turning) % turning;
  };
  std::vector<double> times(static_cast<std::size_t>(ranks) * static_cast<std::size_t>(turning));
  const auto time = [&](int rank, int round) -> double& {
    return times[static_cast<std::size_t>(rank) * static_cast<std::size_t>(turning) + static_cast<std::size_t>(round)];
  };
  for (int round = 0; round < turning; ++round) {
    const int other = partner(self, round);
    time(self, round) = seconds(*line.communicator, [&](Communicator::Batch& batch) {
      if (other >= ranks) return;  // the seat that is left over
      batch.send(line.sent, other);
      batch.receive(line.received, other);
    });
  }
  world_.all_reduce(times, MpiOp::sum);
  std::vector<PairHealth> pairs;
  for (int first = 0; first < ranks; ++first) {
    for (int round = 0; round < turning; ++round) {
      const int second = partner(first, round);
      if (second <= first || second >= ranks) continue;
      const double slower = std::max(time(first, round), time(second, round));
      pairs.push_back({first, second, static_cast<double>(line.sent.bytes()) / slower});
    }
  }
  std::sort(pairs.begin(), pairs.end(), [](const PairHealth& a, const PairHealth& b) {
    return std::pair(a.first, a.second) < std::pair(b.first, b.second);
  });
  return pairs;
}

GroupHealth Examiner::measure_group(const std::string& name, std::vector<int> members, std::int64_t bytes) const {
  const Line line(*this, name, members, bytes);
  const int size = line.communicator->size();
  const Tensor whole = line.sent, part = line.received.flat(0, whole.numel() / size);
  const auto rate = [&](const char* collective, const std::function<void(Communicator::Batch&)>& fill) {
    return sent_bytes(collective, static_cast<double>(whole.bytes()), size) / seconds(*line.communicator, fill);
  };
  GroupHealth health{.name = name, .ranks = std::move(members)};
  const auto one_number = [&](Communicator::Batch& batch) { batch.all_reduce(whole.flat(0, 1)); };
  health.latency = seconds(*line.communicator, one_number, Goes::alone);
  health.all_reduce = rate("all_reduce", [&](Communicator::Batch& batch) { batch.all_reduce(whole); });
  health.all_gather = rate("all_gather", [&](Communicator::Batch& batch) { batch.all_gather(whole, part); });
  health.reduce_scatter =
      rate("reduce_scatter", [&](Communicator::Batch& batch) { batch.reduce_scatter(part, whole); });
  const auto parts_of = [count = part.numel()](Tensor tensor) {
    return [=](int rank) { return tensor.flat(rank * count, count); };
  };
  health.exchange = rate("all_gather", [&](Communicator::Batch& batch) {
    exchange_parts(batch, line.communicator->group(), parts_of(line.received), parts_of(whole));
  });
  return health;
}

/// Each rank's row, on every rank.
std::vector<RankHealth> gather(const MpiComm& world, const RankHealth& mine) {
  const std::vector<std::string> hosts = world.all_gather(mine.host), devices = world.all_gather(mine.device),
                                 cores = world.all_gather(mine.binding.cores),
                                 numa = world.all_gather(mine.binding.numa_nodes);
  constexpr std::size_t fields = 4;
  const auto ranks = static_cast<std::size_t>(world.size());
  std::vector<double> numbers(ranks * fields);
  double* const own = numbers.data() + static_cast<std::size_t>(world.rank()) * fields;
  own[0] = mine.device_numa_node, own[1] = mine.binding.near_device ? 1 : 0;
  own[2] = mine.product_rate, own[3] = mine.copy_rate;
  world.all_reduce(numbers, MpiOp::sum);
  std::vector<RankHealth> all;
  for (std::size_t r = 0; r < ranks; ++r) {
    const double* const n = numbers.data() + r * fields;
    all.push_back({hosts[r], devices[r], static_cast<int>(n[0]), {cores[r], numa[r], n[1] != 0}, n[2], n[3]});
  }
  return all;
}

/// The row of each group, on every rank: its first member's figures; its slowest member would report the same, for a
/// collective ends for all.
std::vector<GroupHealth> gather(const MpiComm& world, const Topology& topology, AxisSet axes, const GroupHealth& mine) {
  constexpr std::size_t fields = 5;
  std::vector<double> numbers(static_cast<std::size_t>(world.size()) * fields);
  double* const own = numbers.data() + static_cast<std::size_t>(world.rank()) * fields;
  own[0] = mine.latency, own[1] = mine.all_reduce, own[2] = mine.all_gather, own[3] = mine.reduce_scatter;
  own[4] = mine.exchange;
  world.all_reduce(numbers, MpiOp::sum);
  std::vector<GroupHealth> all;
  for (int rank = 0; rank < world.size(); ++rank) {
    if (topology.index(axes, rank) != 0) continue;
    const double* const n = numbers.data() + static_cast<std::size_t>(rank) * fields;
    all.push_back({mine.name, topology.members(axes, rank), n[0], n[1], n[2], n[3], n[4]});
  }
  return all;
}

}  // namespace

Health examine(const MpiComm& world, const Topology& topology, Device& device, DType precision,
               std::int64_t message_bytes, int repeats) {
  const Examiner examiner(world, device, repeats);
  Health health;
  health.precision = precision;
  health.message_bytes = message_bytes;
  RankHealth mine{.host = host_name(),
                  .device = device.describe(),
                  .device_numa_node = device.numa_node(),
                  .binding = cpu_binding(device.numa_node())};
  examiner.measure_rank(precision, mine);
  health.ranks = gather(world, mine);
  health.pairs = examiner.measure_pairs(message_bytes);
  std::set<std::vector<int>> seen;
  for (const auto& [name, axes] : {std::pair<const char*, AxisSet>{"tp", Axis::tp},
                                   {"shard", Axis::shard},
                                   {"replicate", Axis::replicate},
                                   {"world", world_axes}}) {
    const bool fresh = seen.insert(topology.members(axes, 0)).second;  // the same on every rank: rank 0's group
    if (topology.size(axes) == 1 || !fresh) continue;
    const GroupHealth group = examiner.measure_group(name, topology.members(axes, world.rank()), message_bytes);
    for (GroupHealth& each : gather(world, topology, axes, group)) health.groups.push_back(std::move(each));
  }
  return health;
}

}  // namespace llmtrain
