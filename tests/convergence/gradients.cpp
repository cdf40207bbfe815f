// SPDX-License-Identifier: Apache-2.0
/// Gradients of one Llama block and of whole tiny models against directional finite differences in fp64.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>
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

/// One block of the tiny model with random weights, a random incoming stream, and memory for all it needs.
class BlockBench {
 public:
  BlockBench() : slots_(plan_, shapes_, tokens_, DType::fp64, DType::fp64) {
    for (const int storage : table_.leases[1].storages) {
      const StorageLayout layout = layout_of(table_.storages[static_cast<std::size_t>(storage)], 0, 1, 1);
      std::vector<std::int64_t> shape{layout.rows};
      if (layout.cols > 1) shape.push_back(layout.cols);
      weight_slots_.push_back(plan_.request(Segment::params, "weight", DType::fp64, shape));
      gradient_slots_.push_back(plan_.request(Segment::grads, "gradient", DType::fp64, shape));
    }
    for (Slot* slot : {&input_, &delta_, &output_, &gradient_}) {
      *slot = plan_.request(Segment::activations, "stream", DType::fp64, {tokens_, config_.hidden});
    }
    rope_ = plan_.request(Segment::params, "rope", DType::fp64, {config_.seq_len, config_.head_dim / 2, 2});
    positions_ = plan_.request(Segment::activations, "positions", DType::int32, {tokens_});
    scratch_slot_ = plan_.request(Segment::scratch, "scratch", DType::uint8, {1 << 20});
    arena_.emplace(*device_, plan_);
    scratch_.emplace((*arena_)[scratch_slot_]);
    fill();
  }

  /// A random linear function of the outgoing stream, residual + delta.
  double loss() {
    Context ctx = context();
    block_.forward(ctx, saved_, tensor(input_), tensor(delta_), tensor(output_), batch_, weights(), tensor(rope_));
    return dot(saved_.norm_2.residual, probe_) + dot(tensor(output_), probe_);
  }
  void backward() {
    Context ctx = context();
    std::copy(probe_.begin(), probe_.end(), tensor(gradient_).ptr<double>());
    block_.backward(ctx, tensor(gradient_), saved_, batch_, weights(),
                    BlockParams<Gradient>(std::span<const Gradient>(gradients_)), tensor(rope_));
  }
  /// Weights, then the two parts of the incoming stream; and their gradients (the parts share one).
  std::vector<Tensor> values() const {
    std::vector<Tensor> all = weights_;
    all.insert(all.end(), {tensor(input_), tensor(delta_)});
    return all;
  }
  std::vector<Tensor> gradients() const {
    std::vector<Tensor> all;
    for (const Gradient& g : gradients_) all.push_back(g.tensor);
    all.insert(all.end(), {tensor(gradient_), tensor(gradient_)});
    return all;
  }

 private:
  Tensor tensor(Slot slot) const { return (*arena_)[slot]; }
  Context context() { return {device_->kernels(), device_->make_stream("compute"), *scratch_}; }
  BlockParams<Tensor> weights() const { return BlockParams<Tensor>{std::span<const Tensor>(weights_)}; }

  void fill() {
    std::mt19937_64 random(5);
    for (std::size_t i = 0; i < weight_slots_.size(); ++i) {
      weights_.push_back(tensor(weight_slots_[i]));
      randomise(weights_.back(), random, 0.4);
      gradients_.push_back({tensor(gradient_slots_[i]), Write::overwrite});
    }
    randomise(tensor(input_), random, 1);
    randomise(tensor(delta_), random, 1);
    const std::vector<double> table = rope_table(config_.rope, config_.seq_len, config_.head_dim);
    std::copy(table.begin(), table.end(), tensor(rope_).ptr<double>());
    batch_.batch = 2;
    batch_.sequence = config_.seq_len;
    batch_.positions = tensor(positions_);
    for (std::int64_t i = 0; i < tokens_; ++i) {
      batch_.positions.ptr<std::int32_t>()[i] = static_cast<std::int32_t>(i % config_.seq_len);
    }
    saved_ = slots_.bind(*arena_, tokens_);
    std::normal_distribution<double> normal;
    probe_.resize(static_cast<std::size_t>(tokens_ * config_.hidden));
    for (double& x : probe_) x = normal(random);
  }

  const ModelConfig config_ = tiny_model(false);
  const LocalShapes shapes_{config_, 0, 1};
  const std::int64_t tokens_ = 2 * config_.seq_len;
  const ParamTable table_ = make_param_table(config_, 1);
  const std::unique_ptr<Device> device_ = make_cpu_device(2);
  const Block block_{config_, shapes_, DType::fp64};
  MemoryPlan plan_;
  const BlockSlots slots_;
  std::vector<Slot> weight_slots_, gradient_slots_;
  Slot input_, delta_, output_, gradient_, rope_, positions_, scratch_slot_;
  std::optional<Arena> arena_;
  std::optional<ScratchStack> scratch_;
  std::vector<Tensor> weights_;
  std::vector<Gradient> gradients_;
  Batch batch_;
  BlockSaved saved_;
  std::vector<double> probe_;
};

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
  BlockBench bench;
  bench.loss();
  bench.backward();
  check_directions(
      bench.values(), bench.gradients(), [&] { return bench.loss(); }, 8);
}
