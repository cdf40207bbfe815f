// SPDX-License-Identifier: Apache-2.0
/// Whole steps under the hazard checker: clean in every layout, and no wait of theirs can be left out unnoticed.
#include <doctest/doctest.h>

#include "llmtrain/driver/step.hpp"
#include "support/slip_device.hpp"

using namespace llmtrain;
using test::SlipDevice;

namespace {

Deck deck_of(int zero) {
  Deck deck;
  deck.model.layers = 3;
  deck.model.hidden = 32;
  deck.model.heads = 4;
  deck.model.kv_heads = 2;
  deck.model.head_dim = 8;
  deck.model.ffn = 48;
  deck.model.seq_len = 16;
  deck.model.vocab = 64;
  deck.model.vocab_multiple = 16;
  deck.schedule.micro_batch = 1;
  deck.schedule.global_batch = 8;
  deck.parallel.zero = zero;
  deck.precision.compute = Compute::bf16;
  return deck;
}

/// Two steps of one of `ranks`; the message of the hazard found, or "".
std::string run_two_steps(const Deck& deck, int ranks, SlipDevice& device, int rank = 0) {
  Parts parts(deck, {Topology(deck, ranks), rank, MpiComm{}}, device, 0);
  HazardChecker checker([&](const void* address) { return parts.arena.at(address); });
  device.behind().set_observer(&checker);
  device.restart();
  std::string message;
  try {
    for (int i = 0; i < 2; ++i) {
      Timers timers;
      run_step(
          parts, StepInputs{}, [](std::int64_t, const Batch&) {}, timers);
    }
  } catch (const Error& error) {
    message = error.what();
  }
  device.behind().set_observer(nullptr);
  return message;
}

}  // namespace

TEST_CASE("no wait and no ready event of a step can be lost unnoticed") {
  for (const int zero : {0, 1}) {
    CAPTURE(zero);
    SlipDevice device(make_trace_device(DeviceKind::cpu));
    const Deck deck = deck_of(zero);
    REQUIRE(run_two_steps(deck, 4, device) == "");
    const std::int64_t events = device.events(), records = device.records();
    // A lost event goes unnoticed only where a later batch of its group is waited for before anything is touched.
    std::int64_t hazards = 0;
    for (device.lost_event = 0; device.lost_event < events; ++device.lost_event) {
      hazards += run_two_steps(deck, 4, device).rfind("hazard: ", 0) == 0 ? 1 : 0;
    }
    device.lost_event = -1;
    MESSAGE("zero " << zero << ": " << hazards << " of " << events << " lost events are hazards");
    CHECK(hazards >= (zero == 0 ? 4 : 8));
    hazards = 0;
    for (device.lost_record = 0; device.lost_record < records; ++device.lost_record) {
      hazards += run_two_steps(deck, 4, device).rfind("hazard: ", 0) == 0 ? 1 : 0;
    }
    device.lost_record = -1;
    MESSAGE("zero " << zero << ": " << hazards << " of " << records << " lost records are hazards");
    CHECK(hazards >= 12);  // those that nobody waits for are none
  }
}

TEST_CASE("no wait and no ready event of a pipeline's transfers can be lost unnoticed") {
  for (const ScheduleKind kind : {ScheduleKind::gpipe, ScheduleKind::one_f_one_b, ScheduleKind::interleaved}) {
    Deck deck = deck_of(0);
    deck.schedule.kind = kind;
    deck.parallel.pipeline = 3;
    deck.model.tied = true;
    if (kind == ScheduleKind::interleaved) {
      deck.schedule.chunks = 2;
      deck.model.layers = 6;
    }
    for (int stage = 0; stage < 3; ++stage) {
      CAPTURE(stage);
      CAPTURE(static_cast<int>(kind));
      SlipDevice device(make_trace_device(DeviceKind::cpu));
      REQUIRE(run_two_steps(deck, 3, device, stage) == "");
      const std::int64_t events = device.events(), records = device.records();
      std::int64_t hazards = 0;
      for (device.lost_event = 0; device.lost_event < events; ++device.lost_event) {
        hazards += run_two_steps(deck, 3, device, stage).rfind("hazard: ", 0) == 0 ? 1 : 0;
      }
      device.lost_event = -1;
      MESSAGE("stage " << stage << ": " << hazards << " of " << events << " lost events are hazards");
      CHECK(hazards >= 16);
      hazards = 0;
      for (device.lost_record = 0; device.lost_record < records; ++device.lost_record) {
        hazards += run_two_steps(deck, 3, device, stage).rfind("hazard: ", 0) == 0 ? 1 : 0;
      }
      device.lost_record = -1;
      MESSAGE("stage " << stage << ": " << hazards << " of " << records << " lost records are hazards");
      CHECK(hazards >= 16);
    }
  }
}
