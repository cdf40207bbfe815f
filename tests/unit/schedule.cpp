// SPDX-License-Identifier: Apache-2.0
/// Schedules: order of actions, the memory they need, and the proof on paper that no pipeline of any size stands still.
#include "llmtrain/schedule/schedule.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <set>

#include "llmtrain/base/error.hpp"
#include "llmtrain/schedule/simulate.hpp"

using namespace llmtrain;

namespace {

using Kind = Action::Kind;
using Stages = std::vector<std::vector<Action>>;

struct Case {
  ScheduleKind kind;
  int stages;
  std::int64_t micro_batches;
  int chunks;
};

/// Every schedule for 1 to 8 stages, 1 to 16 micro-batches and 1 to 4 chunks.
std::vector<Case> grid() {
  std::vector<Case> cases;
  for (int stages = 1; stages <= 8; ++stages) {
    for (std::int64_t m = 1; m <= 16; ++m) {
      cases.push_back({ScheduleKind::gpipe, stages, m, 1});
      cases.push_back({ScheduleKind::one_f_one_b, stages, m, 1});
      for (int chunks = 1; chunks <= 4; ++chunks) {
        if (stages > 1 && m >= stages) cases.push_back({ScheduleKind::interleaved, stages, m, chunks});
      }
    }
  }
  return cases;
}

/// What must be true of one stage's list whatever the schedule: every micro-batch goes through every chunk forward and then
/// backward, and nothing is written over while it is in use.
void check_stage(const std::vector<Action>& actions, const Case& c, int stage) {
  const ScheduleShape shape{c.stages, stage, c.micro_batches, c.chunks};
  std::map<std::pair<int, std::int64_t>, Action> alive;           // by chunk and micro-batch, after its forward
  std::map<int, std::pair<int, std::int64_t>> inputs, gradients;  // who uses which tensor
  std::int64_t done = 0;
  for (const Action& action : actions) {
    const std::pair key(action.chunk, action.micro_batch);
    const bool first = shape.piece(action.chunk) == 0, last = shape.piece(action.chunk) == shape.pieces() - 1;
    switch (action.kind) {
      case Kind::receive_input:
        REQUIRE(!first);
        REQUIRE(inputs.emplace(action.input, key).second);
        break;
      case Kind::forward:
        if (first) REQUIRE(inputs.emplace(action.input, key).second);
        if (last) REQUIRE(gradients.emplace(action.gradient, key).second);
        REQUIRE(inputs.at(action.input) == key);
        REQUIRE((action.output >= 0) == !last);
        for (const auto& [other, a] : alive) {
          const bool same_memory = other.first == action.chunk && a.slot == action.slot;
          REQUIRE(!same_memory);
        }
        REQUIRE(alive.emplace(key, action).second);
        break;
      case Kind::receive_gradient:
        REQUIRE(!last);
        REQUIRE(gradients.emplace(action.gradient, key).second);
        break;
      case Kind::backward:
        REQUIRE(alive.at(key).slot == action.slot);
        REQUIRE(alive.at(key).input == action.input);
        REQUIRE(gradients.at(action.gradient) == key);
        alive.erase(key);
        inputs.erase(action.input);
        gradients.erase(action.gradient);
        ++done;
        break;
      case Kind::send_output: REQUIRE(!last); break;
      case Kind::send_gradient: REQUIRE(!first); break;
    }
  }
  CHECK(alive.empty());
  CHECK(done == c.micro_batches * c.chunks);
}

std::string letters(const std::vector<Action>& actions) {
  std::string text;
  for (const Action& action : actions) {
    if (action.computes()) text += action.kind == Kind::forward ? 'F' : 'B';
  }
  return text;
}

}  // namespace

TEST_CASE("no schedule of any size stands still, and each keeps as many activations as it says") {
  for (const Case& c : grid()) {
    CAPTURE(static_cast<int>(c.kind));
    CAPTURE(c.stages);
    CAPTURE(c.micro_batches);
    CAPTURE(c.chunks);
    const Stages all = make_schedules(c.kind, c.stages, c.micro_batches, c.chunks);
    const Simulation simulation = simulate(all);
    CHECK(simulation.stuck == "");
    for (int stage = 0; stage < c.stages; ++stage) {
      const auto at = static_cast<std::size_t>(stage);
      check_stage(all[at], c, stage);
      int slots = 0;
      for (int chunk = 0; chunk < c.chunks; ++chunk) slots += slots_of(all[at], chunk);
      CHECK(slots >= simulation.in_flight[at]);  // chunks are at their largest at different times
      if (c.chunks == 1) CHECK(slots == simulation.in_flight[at]);
      if (c.kind == ScheduleKind::one_f_one_b) {
        CHECK(slots == std::min<std::int64_t>(c.stages - stage, c.micro_batches));
      }
      if (c.kind == ScheduleKind::gpipe) CHECK(slots == c.micro_batches);
    }
  }
}

TEST_CASE("no pipeline stands still in evaluation") {
  for (const Case& c : grid()) {
    if (c.kind != ScheduleKind::interleaved) continue;
    for (const std::int64_t micro_batches : {std::int64_t{1}, c.micro_batches, 3 * c.micro_batches + 1}) {
      Stages all;
      for (int stage = 0; stage < c.stages; ++stage) {
        all.push_back(make_forward_schedule({c.stages, stage, micro_batches, c.chunks}));
        CHECK(std::ssize(letters(all.back())) == micro_batches * c.chunks);
        CHECK(boundaries_of(all.back()).gradients == 0);
      }
      CHECK(simulate(all).stuck == "");
    }
  }
}

TEST_CASE("stages wait no longer than the schedules' bubble") {
  for (const Case& c : grid()) {
    const Simulation simulation = simulate(make_schedules(c.kind, c.stages, c.micro_batches, c.chunks));
    const std::int64_t work = 3 * c.micro_batches * c.chunks;  // of a stage: forward 1, backward 2
    // (P - 1) forwards and backwards, of one chunk where the micro-batches come in equal groups of P.
    const std::int64_t bubble = 3 * (c.stages - 1);
    if (c.kind != ScheduleKind::interleaved || c.micro_batches % c.stages == 0) {
      CHECK(simulation.ticks == work + bubble);
    } else {
      CHECK(simulation.ticks <= work + c.chunks * bubble);
    }
  }
}

TEST_CASE("the orders of work") {
  CHECK(letters(make_schedule(ScheduleKind::gpipe, {2, 0, 3})) == "FFFBBB");
  CHECK(letters(make_schedule(ScheduleKind::one_f_one_b, {4, 0, 5})) == "FFFFBFBBBB");
  CHECK(letters(make_schedule(ScheduleKind::one_f_one_b, {4, 3, 3})) == "FBFBFB");
  CHECK(letters(make_schedule(ScheduleKind::interleaved, {2, 1, 2, 2})) == "FFFBFBBB");
  CHECK(slots_of(make_schedule(ScheduleKind::one_f_one_b, {4, 0, 2})) == 2);
}

TEST_CASE("a schedule draws itself") {
  CHECK(draw(simulate(make_schedules(ScheduleKind::one_f_one_b, 2, 3, 1))) ==
        "stage 0  F0 F1 .  .  B0 -- F2 B1 -- .  B2 --\n"
        "stage 1  .  F0 B0 -- F1 B1 -- F2 B2 -- .  .\n");
  const Simulation chunked = simulate(make_schedules(ScheduleKind::interleaved, 2, 2, 2));
  CHECK(draw(chunked).starts_with("stage 0  F0.0 F1.0 F0.1 F1.1"));
  CHECK(chunked.idle() == doctest::Approx(1.0 / 5));
}

TEST_CASE("schedules that would stand still are seen to") {
  SUBCASE("a stage that waits for a gradient before it sends the forward that leads to it") {
    Stages all = make_schedules(ScheduleKind::one_f_one_b, 2, 1, 1);
    std::vector<Action>& first = all[0];
    const auto sends = [](const Action& action) { return action.kind == Kind::send_output; };
    const auto send = std::find_if(first.begin(), first.end(), sends);
    std::rotate(send, send + 1, first.end());
    const Simulation simulation = simulate(all);
    CHECK(!simulation.finished());
    CHECK(simulation.stuck.find("receive_gradient of micro-batch 0 has not met its send") != std::string::npos);
    CHECK(simulation.stuck.find("stage 1 waits at action") != std::string::npos);
  }
  SUBCASE("a round of pieces with too few tensors: each stage waits for its own to be sent") {
    Stages all = make_schedules(ScheduleKind::interleaved, 2, 7, 2);
    CHECK(simulate(all).finished());
    for (std::vector<Action>& actions : all) {
      for (Action& action : actions) {
        if (action.output >= 0) action.output = 0;
        if (action.kind == Kind::receive_gradient || action.kind == Kind::send_gradient) action.gradient = 0;
      }
    }
    CHECK(!simulate(all).finished());
  }
  SUBCASE("a transfer of another micro-batch") {
    Stages all = make_schedules(ScheduleKind::gpipe, 2, 2, 1);
    for (Action& action : all[1]) action.micro_batch = 1 - action.micro_batch;
    CHECK_THROWS_AS(simulate(all), Error);
  }
}
