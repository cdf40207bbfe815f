// SPDX-License-Identifier: Apache-2.0
// ranks: 1 2
/// A number that is not finite on one rank alone: no rank makes the update, all count it, and the next one goes on.
#include <doctest/doctest.h>

#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "llmtrain/driver/dry_run.hpp"
#include "llmtrain/driver/step.hpp"

using namespace llmtrain;

namespace {

Deck tiny_deck() {
  Deck deck;
  deck.model.layers = 1;
  deck.model.hidden = 16;
  deck.model.heads = 2;
  deck.model.kv_heads = 1;
  deck.model.head_dim = 8;
  deck.model.ffn = 24;
  deck.model.seq_len = 8;
  deck.model.vocab = 20;
  deck.model.vocab_multiple = 16;
  deck.schedule.micro_batch = 1;
  deck.schedule.global_batch = 4;
  deck.precision.compute = Compute::fp32;
  return deck;
}

/// Every master weight and moment of this rank.
std::vector<float> state_of(Parts& parts) {
  std::vector<float> out;
  for (int i = 0; i < parts.shape.storages(); ++i) {
    for (const Tensor& t : {parts.params.master(i), parts.optimizer.exp_avg(i), parts.optimizer.exp_avg_sq(i)}) {
      out.insert(out.end(), t.ptr<float>(), t.ptr<float>() + t.numel());
    }
  }
  return out;
}

void fill(const Batch& batch, float weight) {
  for (std::int64_t i = 0; i < batch.count(); ++i) {
    const auto id = static_cast<std::int32_t>(i);
    batch.tokens.ptr<std::int32_t>()[i] = id;
    batch.targets.ptr<std::int32_t>()[i] = (id + 1) % 20;
    batch.weights.ptr<float>()[i] = weight;
    batch.positions.ptr<std::int32_t>()[i] = id;
    batch.order.ptr<std::int32_t>()[i] = id;
  }
}

}  // namespace

TEST_CASE("one rank's NaN or infinity skips the update on all") {
  const MpiComm world = MpiComm::world();
  const Deck deck = tiny_deck();
  const std::unique_ptr<Device> device = make_cpu_device(1);
  const Topology topology(deck, world.size());
  const Measured measured = measure(deck, topology, world.rank(), DeviceKind::cpu);
  Parts parts(deck, {topology, world.rank(), world}, *device, measured.scratch_bytes);
  parts.params.initialise(parts.kernels, parts.stream, 5);
  Timers timers;
  constexpr float nan = std::numeric_limits<float>::quiet_NaN(), infinity = std::numeric_limits<float>::infinity();
  const std::array bad{1.0F, nan, 1.0F, infinity, 1.0F};  // a loss weight of the last rank's last micro-batch, by step
  for (std::int64_t step = 1; step <= 5; ++step) {
    CAPTURE(step);
    const std::vector<float> before = state_of(parts);
    const bool last_rank = world.rank() == world.size() - 1;
    const auto load = [&](std::int64_t micro, const Batch& batch) {
      fill(batch, 1.0F);
      const bool here = last_rank && micro == parts.micro_batches() - 1;
      if (here) batch.weights.ptr<float>()[3] = bad[static_cast<std::size_t>(step - 1)];
    };
    run_step(parts, {step, 1e-2, 0.9, 0.95, 1.0}, load, timers);
    const bool good = std::isfinite(bad[static_cast<std::size_t>(step - 1)]);
    CHECK(parts.scalars.ptr<double>()[4] == (good ? 1.0 : 0.0));
    CHECK((state_of(parts) == before) == !good);
    for (const float value : state_of(parts)) REQUIRE(std::isfinite(value));
  }
}
