// SPDX-License-Identifier: Apache-2.0
/// Gradients of one Llama block and of whole tiny models against directional finite differences in fp64.
#include <doctest/doctest.h>

#include <cmath>
#include <functional>
#include <random>

#include "llmtrain/driver/step.hpp"

using namespace llmtrain;

namespace {

ModelConfig tiny_model(bool tied) {
  ModelConfig config;
  config.layers = 2;
  config.hidden = 16;
  config.heads = 4;
  config.kv_heads = 2;
  config.head_dim = 4;
  config.ffn = 24;
  config.seq_len = 12;
  config.vocab = 29;
  config.vocab_multiple = 16;
  config.tied = tied;
  config.init_std = 0.3;
  return config;
}

/// Random values of one scale in a tensor of host memory.
void randomise(Tensor t, std::mt19937_64& random, double scale) {
  std::normal_distribution<double> normal(0, scale);
  for (std::int64_t r = 0; r < t.rows(); ++r) {
    const Tensor row = t.rows_at(r, 1);
    for (std::int64_t c = 0; c < t.cols(); ++c) row.ptr<double>()[c] = normal(random);
  }
}

double dot(Tensor a, const std::vector<double>& b) {
  double sum = 0;
  for (std::int64_t i = 0; i < a.numel(); ++i) sum += a.ptr<double>()[i] * b[static_cast<std::size_t>(i)];
  return sum;
}

/// Checks the derivative of `loss` along random directions in `values` against `gradients`: relative error 1e-6 with a
/// fourth-order central difference.
void check_directions(const std::vector<Tensor>& values, const std::vector<Tensor>& gradients,
                      const std::function<double()>& loss, int directions) {
  std::mt19937_64 random(7);
  std::normal_distribution<double> normal;
  for (int d = 0; d < directions; ++d) {
    std::vector<std::vector<double>> direction, start;
    double predicted = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      const auto n = static_cast<std::size_t>(values[i].numel());
      start.emplace_back(values[i].ptr<double>(), values[i].ptr<double>() + n);
      direction.emplace_back(n);
      for (double& x : direction.back()) x = normal(random);
      predicted += dot(gradients[i], direction.back());
    }
    const auto at = [&](double t) {
      for (std::size_t i = 0; i < values.size(); ++i) {
        for (std::size_t j = 0; j < start[i].size(); ++j) {
          values[i].ptr<double>()[j] = start[i][j] + t * direction[i][j];
        }
      }
      return loss();
    };
    const double h = 1e-4;
    const double measured = (8 * (at(h) - at(-h)) - (at(2 * h) - at(-2 * h))) / (12 * h);
    at(0);
    CAPTURE(d);
    CHECK(std::abs(measured - predicted) <= 1e-6 * std::abs(measured));
  }
}

/// Fills a batch with random tokens, targets and loss weights.
void random_batch(const Batch& batch, std::int64_t vocab) {
  std::mt19937_64 random(3);
  std::vector<std::pair<std::int32_t, std::int32_t>> sorted;
  for (std::int64_t i = 0; i < batch.count(); ++i) {
    const auto id = [&] { return static_cast<std::int32_t>(random() % static_cast<std::uint64_t>(vocab)); };
    batch.tokens.ptr<std::int32_t>()[i] = id();
    batch.targets.ptr<std::int32_t>()[i] = id();
    batch.weights.ptr<float>()[i] = i % 5 == 0 ? 0.0F : 1.0F;
    batch.positions.ptr<std::int32_t>()[i] = static_cast<std::int32_t>(i % batch.sequence);
    sorted.emplace_back(batch.tokens.ptr<std::int32_t>()[i], static_cast<std::int32_t>(i));
  }
  std::sort(sorted.begin(), sorted.end());
  for (std::size_t i = 0; i < sorted.size(); ++i) batch.order.ptr<std::int32_t>()[i] = sorted[i].second;
}

Deck tiny_deck(bool tied) {
  Deck deck;
  deck.model = tiny_model(tied);
  deck.schedule.micro_batch = 2;
  deck.schedule.global_batch = 4;
  deck.precision.compute = Compute::fp64;
  return deck;
}

}  // namespace

TEST_CASE("gradients of whole tiny models") {
  for (const bool tied : {false, true}) {
    CAPTURE(tied);
    const Deck deck = tiny_deck(tied);
    const std::unique_ptr<Device> device = make_cpu_device(2);
    const Topology topology(deck, 1);
    const Measured measured = measure(deck, topology, 0, DeviceKind::cpu);
    Parts parts(deck, {topology, 0, MpiComm{}}, *device, measured.scratch_bytes);
    parts.params.initialise(parts.kernels, parts.stream, 11);
    Timers timers;
    const auto load = [&](std::int64_t, const Batch& batch) { random_batch(batch, deck.model.vocab); };
    run_gradients(parts, load, timers);
    CHECK(parts.totals.ptr<double>()[1] == 2 * 19);  // 24 tokens, every fifth has weight 0, two micro-batches

    std::vector<Tensor> values, gradients;
    for (int i = 0; i < parts.shape.storages(); ++i) {
      values.push_back(parts.params.master(i).flat(0, parts.shape.layouts[static_cast<std::size_t>(i)].numel()));
      gradients.push_back(parts.grads.flat(i).flat(0, values.back().numel()));
    }
    std::vector<std::vector<double>> kept;
    for (const Tensor& g : gradients) kept.emplace_back(g.ptr<double>(), g.ptr<double>() + g.numel());
    // Padding rows of the vocabulary get no gradient.
    const Tensor embedding = parts.grads.flat(0);
    for (std::int64_t i = deck.model.vocab * 16; i < embedding.numel(); ++i) CHECK(embedding.ptr<double>()[i] == 0);
    check_directions(
        values, gradients,
        [&] {
          run_evaluation(parts, 2, load);
          return parts.totals.ptr<double>()[0];
        },
        8);
    for (std::size_t i = 0; i < kept.size(); ++i) {
      CHECK(std::equal(kept[i].begin(), kept[i].end(), gradients[i].ptr<double>()));
    }
  }
}

TEST_CASE("gradients of one block, of its weights and of the stream") {
  const ModelConfig config = tiny_model(false);
  const LocalShapes shapes(config, 0, 1);
  const std::int64_t tokens = 2 * config.seq_len;
  const ParamTable table = make_param_table(config, 1);
  const std::unique_ptr<Device> device = make_cpu_device(2);

  MemoryPlan plan;
  const BlockSlots slots(plan, shapes, tokens, DType::fp64, DType::fp64);
  std::vector<Slot> weight_slots, gradient_slots;
  const std::vector<int>& lease = table.leases[1].storages;
  for (const int storage : lease) {
    const StorageLayout layout = layout_of(table.storages[static_cast<std::size_t>(storage)], 0, 1, 1);
    const bool vector = layout.cols == 1;
    const std::vector<std::int64_t> shape =
        vector ? std::vector<std::int64_t>{layout.rows} : std::vector<std::int64_t>{layout.rows, layout.cols};
    weight_slots.push_back(plan.request(Segment::params, "weight", DType::fp64, shape));
    gradient_slots.push_back(plan.request(Segment::grads, "gradient", DType::fp64, shape));
  }
  const auto stream_slot = [&] {
    return plan.request(Segment::activations, "stream", DType::fp64, {tokens, config.hidden});
  };
  const Slot input = stream_slot(), delta = stream_slot(), output = stream_slot(), gradient = stream_slot();
  const Slot rope = plan.request(Segment::params, "rope", DType::fp64, {config.seq_len, config.head_dim / 2, 2});
  const Slot positions = plan.request(Segment::activations, "positions", DType::int32, {tokens});
  const Slot scratch_slot = plan.request(Segment::scratch, "scratch", DType::uint8, {1 << 20});
  const Arena arena(*device, plan);
  ScratchStack scratch(arena[scratch_slot]);
  Context ctx{device->kernels(), device->make_stream("compute"), scratch};

  std::mt19937_64 random(5);
  std::vector<Tensor> weights;
  std::vector<Gradient> gradients;
  for (std::size_t i = 0; i < weight_slots.size(); ++i) {
    weights.push_back(arena[weight_slots[i]]);
    randomise(weights.back(), random, 0.4);
    gradients.push_back({arena[gradient_slots[i]], Write::overwrite});
  }
  randomise(arena[input], random, 1);
  randomise(arena[delta], random, 1);
  const std::vector<double> cos_sin = rope_table(config.rope, config.seq_len, config.head_dim);
  std::copy(cos_sin.begin(), cos_sin.end(), arena[rope].ptr<double>());
  Batch batch;
  batch.batch = 2;
  batch.sequence = config.seq_len;
  batch.positions = arena[positions];
  for (std::int64_t i = 0; i < tokens; ++i) {
    batch.positions.ptr<std::int32_t>()[i] = static_cast<std::int32_t>(i % config.seq_len);
  }

  const Block block(config, shapes, DType::fp64);
  const BlockSaved saved = slots.bind(arena, tokens);
  const BlockParams<Tensor> weight_struct{std::span<const Tensor>(weights)};
  // The loss is a random linear function of the outgoing stream, residual + delta.
  std::vector<double> probe(static_cast<std::size_t>(tokens * config.hidden));
  std::normal_distribution<double> normal;
  for (double& x : probe) x = normal(random);
  const auto forward = [&] {
    block.forward(ctx, saved, arena[input], arena[delta], arena[output], batch, weight_struct, arena[rope]);
    return dot(saved.norm_2.residual, probe) + dot(arena[output], probe);
  };
  forward();
  std::copy(probe.begin(), probe.end(), arena[gradient].ptr<double>());
  block.backward(ctx, arena[gradient], saved, batch, weight_struct,
                 BlockParams<Gradient>(std::span<const Gradient>(gradients)), arena[rope]);

  std::vector<Tensor> values = weights, computed;
  for (const Gradient& g : gradients) computed.push_back(g.tensor);
  for (const Slot slot : {input, delta}) {  // both feed the same sum
    values.push_back(arena[slot]);
    computed.push_back(arena[gradient]);
  }
  check_directions(values, computed, forward, 8);
}
