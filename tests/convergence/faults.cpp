// SPDX-License-Identifier: Apache-2.0
/// Faults that one rank has on purpose: each is found by the static checks, and named with group and rank, or with the lease.
#include <doctest/doctest.h>

#include <optional>
#include <set>

#include "llmtrain/backend/hazards.hpp"
#include "llmtrain/backend/kernels.hpp"
#include "llmtrain/driver/dry_run.hpp"
#include "llmtrain/driver/micro_batches.hpp"
#include "llmtrain/plan/group_check.hpp"
#include "support/small_deck.hpp"

using namespace llmtrain;

namespace {

enum class Fault { none, omitted, repeated, late, shorter, other_type, other_operation, other_reduction, other_end };

/// Passes on what a rank issues, but for one fault in one batch of a group.
class FaultyRank final : public OpObserver {
 public:
  FaultyRank(OpObserver& behind, GroupKey group, Fault fault, std::int64_t at)
      : behind_(behind), group_(std::move(group)), fault_(fault), at_(at) {}

  void on_operation(const OpNote&) override {}
  void on_batch(const BatchNote& note) override {
    if (note.group->name != group_.first || note.group->world_ranks != group_.second) return behind_.on_batch(note);
    const std::int64_t number = number_++;
    std::vector<CollectiveNote> collectives(note.collectives.begin(), note.collectives.end());
    if (number == at_ && fault_ == Fault::late) {
      kept_ = collectives;
      return;
    }
    if (number == at_) spoil(collectives);
    if (number != at_ || fault_ != Fault::omitted) behind_.on_batch({note.group, collectives, note.ready, note.done});
    if (number == at_ && fault_ == Fault::repeated) on_batch(note);
    if (kept_) behind_.on_batch({note.group, *std::exchange(kept_, std::nullopt), note.ready, note.done});
  }

 private:
  void spoil(std::vector<CollectiveNote>& collectives) const {
    CollectiveNote& last = collectives.back();
    for (Tensor* tensor : {&last.destination, &last.source}) {
      if (!*tensor) continue;
      if (fault_ == Fault::shorter) *tensor = tensor->is_dense() ? tensor->rows_at(0, tensor->rows() / 2) : *tensor;
      if (fault_ == Fault::other_type) tensor->dtype = tensor->dtype == DType::bf16 ? DType::fp32 : DType::bf16;
    }
    const bool sends = std::string_view(last.name) == "send", receives = std::string_view(last.name) == "receive";
    if (fault_ == Fault::other_operation) last.name = sends || receives ? "all_reduce" : "broadcast";
    if (fault_ == Fault::other_reduction) last.reduce = ReduceOp::max;
    if (fault_ == Fault::other_end) last.name = sends ? "receive" : receives ? "send" : last.name;
  }

  OpObserver& behind_;
  const GroupKey group_;
  const Fault fault_;
  const std::int64_t at_;
  std::int64_t number_ = 0;
  std::optional<std::vector<CollectiveNote>> kept_;
};

struct Case {
  Deck deck;
  int ranks;
};

/// Layouts in which every kind of group occurs.
std::vector<Case> cases() {
  Deck deck = small_deck(1, 4, true);
  deck.precision.compute = Compute::bf16;
  deck.parallel.persistence = 0;
  deck.schedule.micro_batch = 1;
  Deck sharded = deck;
  sharded.parallel.tensor = 4;
  sharded.parallel.pipeline = 2;
  sharded.parallel.shard = 2;
  sharded.parallel.zero = 2;
  deck.parallel.zero = 0;
  return {{sharded, 32}, {deck, 4}};
}

/// What a rank issues, with a fault or without.
IssuedBatches issue(const Case& c, int rank, const GroupKey& group = {}, Fault fault = Fault::none,
                    std::int64_t at = -1) {
  const Topology topology(c.deck, c.ranks);
  DryRank dry(c.deck, topology, rank, DeviceKind::cpu, micro_batches_of(c.deck, topology));
  IssuedBatches issued;
  FaultyRank faulty(issued, group, fault, at);
  dry.step(fault == Fault::none ? static_cast<OpObserver&>(issued) : faulty);
  return issued;
}

std::string message_of(const std::vector<IssuedBatches>& all, int rank, const IssuedBatches& faulty) {
  GroupCheck check;
  try {
    for (int i = 0; i < std::ssize(all); ++i) {
      if (i != rank) check.add(i, all[static_cast<std::size_t>(i)]);
    }
    check.add(rank, faulty);
    check.finish();
  } catch (const Error& error) {
    CHECK(error.code() == ExitCode::internal);
    return error.what();
  }
  return "";
}

/// Ends lease number `early` of a step where it begins.
class EarlyEnd final : public OpObserver {
 public:
  EarlyEnd(OpObserver& behind, std::int64_t early) : behind_(behind), early_(early) {}
  std::int64_t begun = 0;
  std::string lease;  ///< the one ended early

  void on_operation(const OpNote& note) override { behind_.on_operation(note); }
  void on_batch(const BatchNote& note) override { behind_.on_batch(note); }
  void on_record(Stream stream, Event event) override { behind_.on_record(stream, event); }
  void on_wait(Stream stream, Event event) override { behind_.on_wait(stream, event); }
  void on_lease(const LeaseNote& note) override {
    behind_.on_lease(note);
    if (note.kind != LeaseNote::Kind::begins || begun++ != early_) return;
    lease = note.name;
    behind_.on_lease({LeaseNote::Kind::ends, note.name, note.tensors});
  }

 private:
  OpObserver& behind_;
  const std::int64_t early_;
};

}  // namespace

TEST_CASE("a rank that issues something else than its group, in any kind of group, is named") {
  std::set<std::string> kinds;
  for (const Case& c : cases()) {
    std::vector<IssuedBatches> healthy;
    for (int rank = 0; rank < c.ranks; ++rank) healthy.push_back(issue(c, rank));
    REQUIRE(message_of(healthy, 0, healthy[0]) == "");
    const int rank = c.ranks - 1;
    for (const auto& [group, batches] : healthy.back().by_group()) {
      kinds.insert(group.first);
      CAPTURE(group.first);
      const auto last = static_cast<std::int64_t>(batches.size()) - 1;
      const bool transfers = group.first.starts_with("pp-");
      for (const Fault fault : {Fault::omitted, Fault::repeated, Fault::late, Fault::shorter, Fault::other_type,
                                Fault::other_operation, Fault::other_reduction, Fault::other_end}) {
        CAPTURE(static_cast<int>(fault));
        if (fault == Fault::other_end && !transfers) continue;
        for (const std::int64_t at : {std::int64_t{0}, last / 2, last}) {
          CAPTURE(at);
          // A batch after an equal one is no fault; nor is the last one, which has none behind it: that is `omitted`.
          const auto number = static_cast<std::size_t>(at);
          if (fault == Fault::late && (at == last || batches[number] == batches[number + 1])) continue;
          const std::string message = message_of(healthy, rank, issue(c, rank, group, fault, at));
          CAPTURE(message);
          CHECK(message.find("in group '" + group.first + "'") != std::string::npos);
          CHECK(message.find("on rank " + std::to_string(rank)) != std::string::npos);
        }
      }
    }
  }
  CHECK(kinds == std::set<std::string>{"tensor", "kv", "shard", "replicate", "data", "tied", "pp-forward",
                                       "pp-backward", "world"});
}

TEST_CASE("a step that touches what it has given back is named, whichever lease it is") {
  for (int zero = 0; zero <= 3; ++zero) {
    CAPTURE(zero);
    Deck deck = cases().back().deck;
    deck.parallel.zero = zero;
    deck.precision.reduce = zero == 1 ? Storage16::bf16 : Storage16::fp32;  // copies travel
    const Topology topology(deck, 4);
    std::int64_t leases = 1;
    for (std::int64_t early = -1; early < leases; ++early) {
      CAPTURE(early);
      DryRank dry(deck, topology, 1, DeviceKind::cpu, micro_batches_of(deck, topology));
      HazardChecker checker([&](const void* address) { return dry.parts.arena.at(address); });
      EarlyEnd end(checker, early);
      std::string message;
      try {
        dry.step(end);
      } catch (const Error& error) {
        message = error.what();
      }
      if (early < 0) {
        REQUIRE(message == "");
        leases = end.begun;
        continue;
      }
      CAPTURE(message);
      CHECK(message.starts_with("hazard: "));
      CHECK(message.find("after the lease of " + end.lease + ";") != std::string::npos);
    }
    CHECK(leases > 40);
  }
}

TEST_CASE("weights and gradients used after their lease") {
  Deck deck = cases().back().deck;
  deck.parallel.zero = 3;
  const Topology topology(deck, 4);
  DryRank dry(deck, topology, 1, DeviceKind::cpu, micro_batches_of(deck, topology));
  Parts& parts = dry.parts;
  HazardChecker checker([&](const void* address) { return parts.arena.at(address); });
  dry.device->set_observer(&checker);
  const int embedding = parts.pieces[0].embedding();
  const auto message = [&](Tensor tensor) -> std::string {
    try {
      parts.kernels.fill(parts.stream, tensor, 0.0);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  parts.params.begin_pass({embedding}, parts.stream);
  const Tensor weights = parts.params.acquire(embedding, parts.stream)[0];
  CHECK(message(weights) == "");
  parts.params.release(embedding, parts.stream);
  CHECK(message(weights).find("after the lease of embedding") != std::string::npos);
  parts.grads.begin_step(parts.stream);
  const int first = parts.step_leases.gradients.front();
  const Tensor gradient = parts.grads.open(first)[0].tensor;
  CHECK(message(gradient) == "");
  parts.grads.commit(first, parts.stream);
  CHECK(message(gradient).find("after the lease of head") != std::string::npos);
  dry.device->set_observer(nullptr);
}
