// SPDX-License-Identifier: Apache-2.0
/// Rules between the deck and the number of ranks, and the nearest valid numbers.
#include "rules.hpp"

#include "llmtrain/config/check.hpp"

namespace llmtrain {

std::string nearest_multiples(std::int64_t value, std::int64_t divisor) {
  const std::int64_t below = value / divisor * divisor;
  const std::int64_t above = below + divisor;
  return below > 0 ? fmt::format("{} or {}", below, above) : std::to_string(above);
}

std::string nearest_divisors(std::int64_t value, std::int64_t wanted) {
  // Pairs (d, value / d) up to the root: at most about 3e7 divisions for the largest products of ranges.
  std::int64_t below = 1;
  std::int64_t above = value;
  for (std::int64_t d = 1; d <= value / d; ++d) {
    if (value % d != 0) continue;
    for (const std::int64_t candidate : {d, value / d}) {
      if (candidate <= wanted && candidate > below) below = candidate;
      if (candidate >= wanted && candidate < above) above = candidate;
    }
  }
  if (wanted > value) return std::to_string(value);
  return below == above ? std::to_string(below) : fmt::format("{} or {}", below, above);
}

namespace {

/// The largest divisor of `value` up to `limit`.
std::int64_t largest_divisor(std::int64_t value, std::int64_t limit) {
  while (value % limit != 0) --limit;
  return limit;
}

}  // namespace

void check_ranks(const Deck& deck, int ranks, const DeckOrigin& origin, Findings& findings) {
  Rules rules(origin, findings);
  const ParallelConfig& p = deck.parallel;
  const std::int64_t model = static_cast<std::int64_t>(p.tensor) * p.pipeline;
  rules.rule(ranks % model == 0, {"parallel.tensor", "parallel.pipeline"},
             "{} ranks are not divisible by parallel.tensor x parallel.pipeline = {} x {} = {}: start {} ranks, or "
             "choose a product "
             "of {}",
             ranks, p.tensor, p.pipeline, model, nearest_multiples(ranks, model), nearest_divisors(ranks, model));
  if (ranks % model != 0) return;
  const std::int64_t data = ranks / model;
  rules.rule(p.shard == 0 || data % p.shard == 0, {"parallel.shard"},
             "parallel.shard {} does not divide the {} data-parallel ranks ({} ranks / {}): shard may be {}", p.shard,
             data, ranks, model, nearest_divisors(data, p.shard));
  const ScheduleConfig& s = deck.schedule;
  if (s.global_batch % s.micro_batch != 0) return;  // reported without the ranks
  const std::int64_t together = s.micro_batch * data;
  const std::int64_t per_micro_batch = s.global_batch / s.micro_batch;
  rules.rule(s.global_batch % together == 0, {"schedule.global_batch", "schedule.micro_batch", "parallel.tensor"},
             "schedule.global_batch {} is not divisible by schedule.micro_batch x data = {} x {} = {}: global_batch "
             "may be {}, or use "
             "{} data-parallel ranks",
             s.global_batch, s.micro_batch, data, together, nearest_multiples(s.global_batch, together),
             nearest_divisors(per_micro_batch, data));
  if (s.global_batch % together != 0 || s.kind != ScheduleKind::interleaved) return;
  const std::int64_t micro_batches = s.global_batch / together, most = s.global_batch / (data * p.pipeline);
  rules.rule(micro_batches >= p.pipeline,
             {"schedule.kind", "schedule.global_batch", "schedule.micro_batch", "parallel.pipeline"},
             "schedule.kind interleaved needs at least parallel.pipeline = {} micro-batches a rank, but global_batch / "
             "(micro_batch x data) = {} / ({} x {}) = {}: global_batch may be {}{}, or use kind 1f1b",
             p.pipeline, s.global_batch, s.micro_batch, data, micro_batches, together * p.pipeline,
             most > 0 ? fmt::format(", or micro_batch {}", largest_divisor(s.global_batch / data, most)) : "");
}

}  // namespace llmtrain
