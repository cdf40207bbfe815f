// SPDX-License-Identifier: Apache-2.0
/// Gradients of one block and of whole tiny models, of both families with every option, against directional finite differences in fp64.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>
#include <random>

#include "llmtrain/driver/dry_run.hpp"
#include "llmtrain/driver/step.hpp"
#include "support/gpt.hpp"
#include "support/random_batch.hpp"

using namespace llmtrain;

namespace {

ModelConfig tiny_llama(bool tied) {
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

/// With every option of the family; the scaling changes one of the two frequencies in part, the other in full.
ModelConfig full_llama() {
  ModelConfig config = tiny_llama(false);
  config.qkv_bias = true;
  config.qk_norm = true;
  config.rope = {100, {4, 1, 4, 16}};
  config.dropout = 0.1;
  return config;
}

ModelConfig tiny_gpt(Activation activation, double dropout) {
  ModelConfig config = as_gpt(tiny_llama(true));
  config.activation = activation;
  config.dropout = dropout;
  return config;
}

struct NamedModel {
  const char* name;
  ModelConfig config;
};
const std::vector<NamedModel> models{{"llama", tiny_llama(false)},
                                     {"llama, tied", tiny_llama(true)},
                                     {"llama, every option", full_llama()},
                                     {"gpt, exact gelu", tiny_gpt(Activation::gelu, 0)},
                                     {"gpt, dropout", tiny_gpt(Activation::gelu_tanh, 0.2)}};

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
/// fourth-order central difference, and slope 2 with the second-order one.
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
    const auto central = [&](double h) { return (at(h) - at(-h)) / (2 * h); };
    const double h = 1e-4, measured = (4 * central(h) - central(2 * h)) / 3;
    CAPTURE(d);
    CHECK(std::abs(measured - predicted) <= 1e-6 * std::abs(measured));
    // Central differences approach it with the square of the step, as the third derivative tells.
    double error[3] = {};
    for (int i = 0; i < 3; ++i) error[i] = std::abs(central(4 * h / (1 << i)) - predicted);
    for (int i = 0; i < 2; ++i) CHECK(std::log2(error[i] / error[i + 1]) == doctest::Approx(2).epsilon(0.05));
    at(0);
  }
}

Deck tiny_deck(const ModelConfig& model, std::int64_t micro_batch = 2) {
  Deck deck;
  deck.model = model;
  deck.schedule.micro_batch = micro_batch;
  deck.schedule.global_batch = 4;
  deck.precision.compute = Compute::fp64;
  return deck;
}

/// A whole tiny model on one rank, with weights in which no bias is 0 and no norm weight 1.
class TinyRun {
 public:
  explicit TinyRun(const Deck& tiny)
      : deck(tiny),
        topology(deck, 1),
        parts(deck, {topology, 0, MpiComm{}}, *device, measure(deck, topology, 0, DeviceKind::cpu).scratch_bytes),
        load([this](std::int64_t m, const Batch& batch) {
          random_batch(batch, deck.model.vocab, 70 + m * deck.schedule.micro_batch);
        }) {
    parts.params.initialise(parts.kernels, parts.stream, 11);
    std::mt19937_64 random(13);
    std::normal_distribution<double> normal(0, 0.2);
    for (int i = 0; i < parts.shape.storages(); ++i) {
      values.push_back(parts.params.master(i).flat(0, parts.shape.layouts[static_cast<std::size_t>(i)].numel()));
      gradients.push_back(parts.grads.flat(i).flat(0, values.back().numel()));
      for (std::int64_t k = 0; k < values.back().numel(); ++k) values.back().ptr<double>()[k] += normal(random);
    }
  }
  /// Loss of the step, and its gradients in the accumulators.
  double train() {
    run_gradients(parts, load, timers);
    return parts.totals.ptr<double>()[0];
  }
  double evaluate() {
    run_evaluation(parts, parts.micro_batches(), load);
    return parts.totals.ptr<double>()[0];
  }

  const Deck deck;
  const std::unique_ptr<Device> device = make_cpu_device(2);
  const Topology topology;
  Timers timers;
  Parts parts;
  const LoadBatch load;
  std::vector<Tensor> values, gradients;
};

}  // namespace

TEST_CASE("gradients of whole tiny models") {
  for (const auto& [name, config] : models) {
    CAPTURE(name);
    TinyRun run(tiny_deck(config));
    const double loss = run.train();
    CHECK(run.parts.totals.ptr<double>()[1] == 4 * 9);  // three tokens of twelve in each sample have weight 0
    std::vector<std::vector<double>> kept;
    for (const Tensor& g : run.gradients) kept.emplace_back(g.ptr<double>(), g.ptr<double>() + g.numel());
    // Padding rows of the vocabulary get no gradient.
    const Tensor embedding = run.parts.grads.flat(0);
    for (std::int64_t i = config.vocab * 16; i < embedding.numel(); ++i) CHECK(embedding.ptr<double>()[i] == 0);
    // Dropout is part of the training pass only; it repeats exactly.
    const bool drops = config.dropout > 0;
    if (drops) CHECK(run.evaluate() != loss);
    if (!drops) CHECK(run.evaluate() == loss);
    check_directions(
        run.values, run.gradients, [&] { return drops ? run.train() : run.evaluate(); }, 8);
    for (std::size_t i = 0; i < kept.size(); ++i) {
      CHECK(std::equal(kept[i].begin(), kept[i].end(), run.gradients[i].ptr<double>()));
    }
  }
}

TEST_CASE("evaluation does not drop") {
  ModelConfig config = tiny_gpt(Activation::gelu_tanh, 0.2);
  const double with = TinyRun(tiny_deck(config)).evaluate();
  config.dropout = 0;
  CHECK(TinyRun(tiny_deck(config)).evaluate() == with);
}

TEST_CASE("what is dropped does not depend on the cut into micro-batches") {
  for (const ModelConfig& config : {full_llama(), tiny_gpt(Activation::gelu_tanh, 0.2)}) {
    TinyRun whole(tiny_deck(config, 4)), parts(tiny_deck(config, 1));
    CHECK(std::abs(whole.train() - parts.train()) <= 1e-12 * std::abs(whole.train()));
    double difference = 0, square = 0;
    for (std::size_t i = 0; i < whole.gradients.size(); ++i) {
      for (std::int64_t k = 0; k < whole.gradients[i].numel(); ++k) {
        const double a = whole.gradients[i].ptr<double>()[k], b = parts.gradients[i].ptr<double>()[k];
        difference += (a - b) * (a - b);
        square += a * a;
      }
    }
    CHECK(difference <= 1e-26 * square);
  }
}

namespace {

/// One block of a tiny model with random weights, a random incoming stream, and memory for all it needs.
class BlockBench {
 public:
  explicit BlockBench(const ModelConfig& config)
      : config_(config), slots_(plan_, shapes_, tokens_, DType::fp64, DType::fp64) {
    for (const int storage : table_.leases[1].storages) {
      const StorageSpec& spec = table_.storages[static_cast<std::size_t>(storage)];
      const StorageLayout layout = layout_of(spec, 0, 1, 1);
      std::vector<std::int64_t> shape{layout.rows};
      if (spec.sections[0].shape.size() > 1) shape.push_back(layout.cols);
      weight_slots_.push_back(plan_.request(Segment::params, "weight", DType::fp64, shape));
      gradient_slots_.push_back(plan_.request(Segment::grads, "gradient", DType::fp64, shape));
    }
    for (Slot* slot : {&input_, &delta_, &output_, &gradient_}) {
      *slot = plan_.request(Segment::activations, "stream", DType::fp64, {tokens_, config_.hidden});
    }
    rope_ = plan_.request(Segment::params, "rope", DType::fp64, {config_.seq_len, config_.head_dim / 2, 2});
    positions_ = plan_.request(Segment::activations, "positions", DType::int32, {tokens_});
    samples_ = plan_.request(Segment::activations, "samples", DType::int64, {2});
    scratch_slot_ = plan_.request(Segment::scratch, "scratch", DType::uint8, {1 << 20});
    arena_.emplace(*device_, plan_);
    scratch_.emplace((*arena_)[scratch_slot_]);
    fill();
  }

  /// A random linear function of the outgoing stream, residual + delta.
  double loss() {
    Context ctx = context();
    block_.forward(ctx, saved_, tensor(input_), tensor(delta_), tensor(output_), batch_, weights(), rope(), layer);
    return dot(saved_.norm_2.residual, probe_) + dot(tensor(output_), probe_);
  }
  void backward() {
    Context ctx = context();
    std::copy(probe_.begin(), probe_.end(), tensor(gradient_).ptr<double>());
    block_.backward(ctx, tensor(gradient_), saved_, batch_, weights(),
                    BlockParams<Gradient>(std::span<const Gradient>(gradients_), config_), rope(), layer);
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
  BlockParams<Tensor> weights() const { return {std::span<const Tensor>(weights_), config_}; }
  Tensor rope() const { return config_.positions == Positions::rope ? tensor(rope_) : Tensor{}; }

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
    batch_.samples = tensor(samples_);
    for (std::int64_t i = 0; i < tokens_; ++i) {
      batch_.positions.ptr<std::int32_t>()[i] = static_cast<std::int32_t>(i % config_.seq_len);
      batch_.samples.ptr<std::int64_t>()[i / config_.seq_len] = 30 + i / config_.seq_len;
    }
    saved_ = slots_.bind(*arena_, tokens_, tokens_);
    std::normal_distribution<double> normal;
    probe_.resize(static_cast<std::size_t>(tokens_ * config_.hidden));
    for (double& x : probe_) x = normal(random);
  }

  static constexpr std::int64_t layer = 1;
  const ModelConfig config_;
  const LocalShapes shapes_{config_, 0, 1};
  const std::int64_t tokens_ = 2 * config_.seq_len;
  const ParamTable table_ = make_param_table(config_, 1);
  const std::unique_ptr<Device> device_ = make_cpu_device(2);
  const Block block_{config_, shapes_, DType::fp64, {config_.dropout, 3}};
  MemoryPlan plan_;
  const BlockSlots slots_;
  std::vector<Slot> weight_slots_, gradient_slots_;
  Slot input_, delta_, output_, gradient_, rope_, positions_, samples_, scratch_slot_;
  std::optional<Arena> arena_;
  std::optional<ScratchStack> scratch_;
  std::vector<Tensor> weights_;
  std::vector<Gradient> gradients_;
  Batch batch_;
  BlockSaved saved_;
  std::vector<double> probe_;
};

}  // namespace

TEST_CASE("gradients of one block, of its weights and of the stream") {
  for (const auto& [name, config] : models) {
    CAPTURE(name);
    BlockBench bench(config);
    bench.loss();
    bench.backward();
    check_directions(
        bench.values(), bench.gradients(), [&] { return bench.loss(); }, 8);
  }
}

TEST_CASE("RoPE frequencies of Llama 3.1") {
  RopeConfig rope;
  rope.theta = 500000;
  const std::vector<double> plain = rope_frequencies(rope, 128);
  rope.scaling = {8, 1, 4, 8192};
  const std::vector<double> scaled = rope_frequencies(rope, 128);
  const double pi = std::acos(-1.0);
  int kept = 0, divided = 0, between = 0;
  for (std::size_t i = 0; i < plain.size(); ++i) {
    const double wavelength = 2 * pi / plain[i];
    if (wavelength < 8192.0 / 4) {
      CHECK(scaled[i] == plain[i]);
      ++kept;
    } else if (wavelength > 8192.0) {
      CHECK(scaled[i] == doctest::Approx(plain[i] / 8).epsilon(1e-14));
      ++divided;
    } else {
      const double smooth = (8192.0 / wavelength - 1) / 3;
      CHECK(scaled[i] == doctest::Approx((1 - smooth) * plain[i] / 8 + smooth * plain[i]).epsilon(1e-14));
      ++between;
    }
  }
  CHECK(kept == 29);
  CHECK(divided == 29);
  CHECK(between == 6);
}
