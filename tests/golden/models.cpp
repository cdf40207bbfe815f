// SPDX-License-Identifier: Apache-2.0
/// Tiny models in fp64 against numbers of an independent implementation in NumPy (golden.py, which writes the files read
/// here): initial weights, losses, gradients, and parameters after some updates.
#include <doctest/doctest.h>
#include <simdjson.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "lcg.hpp"
#include "llmtrain/config/read.hpp"
#include "llmtrain/driver/dry_run.hpp"
#include "llmtrain/driver/resolve.hpp"
#include "llmtrain/driver/step.hpp"
#include "llmtrain/optim/lr.hpp"

using namespace llmtrain;

namespace {

/// The batch of a step: tokens, targets and loss weights are runs of one generator, [global_batch, seq_len] each.
struct GlobalBatch {
  std::int64_t first_sample;
  std::vector<std::int32_t> tokens, targets;
  std::vector<float> weights;

  GlobalBatch(const Deck& deck, std::int64_t step) : first_sample((step - 1) * deck.schedule.global_batch) {
    const auto n = static_cast<std::size_t>(deck.schedule.global_batch * deck.model.seq_len);
    Lcg random(static_cast<std::uint64_t>(step));
    const auto id = [&] { return static_cast<std::int32_t>(random.next() % deck.model.vocab); };
    for (std::size_t i = 0; i < n; ++i) tokens.push_back(id());
    for (std::size_t i = 0; i < n; ++i) targets.push_back(id());
    for (std::size_t i = 0; i < n; ++i) weights.push_back(random.next() % 5 == 0 ? 0.0F : 1.0F);
  }

  /// Writes micro-batch `micro` into device memory (the host's, here).
  void load(std::int64_t micro, const Batch& batch) const {
    const std::int64_t n = batch.count();
    const auto from = static_cast<std::ptrdiff_t>(micro * n);
    std::copy_n(tokens.begin() + from, n, batch.tokens.ptr<std::int32_t>());
    std::copy_n(targets.begin() + from, n, batch.targets.ptr<std::int32_t>());
    std::copy_n(weights.begin() + from, n, batch.weights.ptr<float>());
    for (std::int64_t i = 0; batch.samples && i < batch.batch; ++i) {
      batch.samples.ptr<std::int64_t>()[i] = first_sample + micro * batch.batch + i;
    }
    std::vector<std::int32_t> order;
    for (std::int32_t i = 0; i < n; ++i) {
      batch.positions.ptr<std::int32_t>()[i] = static_cast<std::int32_t>(i % batch.sequence);
      order.push_back(i);
    }
    const std::int32_t* const ids = batch.tokens.ptr<std::int32_t>();
    std::stable_sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) { return ids[a] < ids[b]; });
    std::copy(order.begin(), order.end(), batch.order.ptr<std::int32_t>());
  }
};

/// What a golden file says of an array: its norm, and its dot product with `direction_of` its size.
struct Probe {
  double norm, dot;
};

std::vector<double> direction_of(std::size_t n) {
  Lcg random(n);
  std::vector<double> direction(n);
  for (double& x : direction) x = static_cast<double>(random.next()) * 0x1p-30 - 1.0;
  return direction;
}

double norm_of(std::span<const double> x) {
  double squares = 0;
  for (const double v : x) squares += v * v;
  return std::sqrt(squares);
}

/// A golden file.
class Golden {
 public:
  explicit Golden(const std::string& name) : root_(parser_.load(LLMTRAIN_GOLDEN_FOLDER "/" + name + ".json")) {}

  Deck deck() const {  // JSON is YAML too
    const std::string text = simdjson::to_string(simdjson::dom::element(root_["deck"]));
    return resolve(parse_deck(text, "golden deck"), 0, DeviceKind::cpu);
  }
  std::int64_t steps() const { return static_cast<std::int64_t>(simdjson::dom::array(root_["steps"]).size()); }
  double number(std::int64_t step, const char* key) const {
    return simdjson::dom::array(root_["steps"]).at(static_cast<std::size_t>(step - 1))[key];
  }
  std::size_t sections() const { return simdjson::dom::object(root_["sections"]).size(); }
  Probe probe(const std::string& section, const char* key) const {
    const simdjson::dom::array values = root_["sections"][section][key];
    return {values.at(0), values.at(1)};
  }

 private:
  simdjson::dom::parser parser_;
  simdjson::dom::element root_;
};

/// Compares `key` of every section with the golden file. The bound on a section's difference is
/// e (its norm + 1e-3 G sqrt(n / N)), G the norm of all sections, n and N element counts; of its dot product, that times
/// the direction's norm.
void check_sections(const Golden& golden, Parts& parts, const char* key, double e,
                    const std::function<Tensor(int)>& flat_of, double scale = 1.0) {
  struct Found {
    std::string name;
    std::vector<double> values;
  };
  std::vector<Found> found;
  double squares = 0, elements = 0;
  for (int i = 0; i < parts.shape.storages(); ++i) {
    const auto at = static_cast<std::size_t>(i);
    const Tensor flat = flat_of(i);
    for (const SectionRange& range : section_ranges(parts.shape.layouts[at], 0, flat.numel())) {
      const Section& section = parts.table.storages[at].sections[static_cast<std::size_t>(range.section)];
      const double* const first = flat.ptr<double>() + range.offset;
      found.push_back({section.name, {first, first + section.numel()}});
      for (double& x : found.back().values) x *= scale;
      squares += std::pow(golden.probe(section.name, key).norm, 2);
      elements += static_cast<double>(section.numel());
    }
  }
  CHECK(found.size() == golden.sections());
  for (const Found& section : found) {
    const Probe expected = golden.probe(section.name, key);
    const std::vector<double> direction = direction_of(section.values.size());
    double dot = 0;
    for (std::size_t i = 0; i < direction.size(); ++i) dot += section.values[i] * direction[i];
    const double share = std::sqrt(squares * static_cast<double>(section.values.size()) / elements);
    const double bound = e * (expected.norm + 1e-3 * share);
    CAPTURE(key);
    CAPTURE(section.name);
    CHECK(std::abs(norm_of(section.values) - expected.norm) <= bound);
    CHECK(std::abs(dot - expected.dot) <= bound * norm_of(direction));
  }
}

void check_relative(double value, double expected, double e) {
  CAPTURE(value);
  CAPTURE(expected);
  CHECK(std::abs(value - expected) <= e * std::abs(expected));
}

void check_model(const std::string& name) {
  CAPTURE(name);
  const Golden golden(name);
  const Deck deck = golden.deck();
  const std::unique_ptr<Device> device = make_cpu_device(1);
  const Topology topology(deck, 1);
  const Measured measured = measure(deck, topology, 0, DeviceKind::cpu);
  Parts parts(deck, {topology, 0, MpiComm{}}, *device, measured.scratch_bytes);
  parts.params.initialise(parts.kernels, parts.stream, static_cast<std::uint64_t>(deck.run.seed));
  const auto weights = [&](int storage) { return parts.params.whole(storage); };
  check_sections(golden, parts, "initial", 1e-14, weights);

  Timers timers;
  for (std::int64_t step = 1; step <= golden.steps(); ++step) {
    CAPTURE(step);
    const GlobalBatch batch(deck, step);
    const auto load = [&](std::int64_t micro, const Batch& to) { batch.load(micro, to); };
    const double lr = learning_rate(deck.optimizer, deck.run.steps, step);
    run_step(parts, {step, lr, deck.optimizer.betas[0], deck.optimizer.betas[1], deck.optimizer.clip}, load, timers);
    const double* const scalars = parts.scalars.ptr<double>();
    check_relative(scalars[5], golden.number(step, "loss"), 1e-12);
    check_relative(scalars[6], golden.number(step, "grad_norm"), 1e-9);
    check_relative(scalars[1], golden.number(step, "lr"), 1e-12);
    const double tokens = scalars[7];  // accumulators hold the gradient of the summed loss
    const auto gradients = [&](int storage) { return parts.grads.flat(storage); };
    if (step == 1) check_sections(golden, parts, "first_gradient", 1e-9, gradients, 1 / tokens);
    if (step == golden.steps()) check_sections(golden, parts, "last_gradient", 1e-9, gradients, 1 / tokens);
  }
  check_sections(golden, parts, "parameters", 1e-9, weights);
}

}  // namespace

TEST_CASE("Llama agrees with the NumPy reference") {
  check_model("llama");
  check_model("llama_tied");
  check_model("llama_options");  // biases of q, k and v, their norms, RoPE scaling
}

TEST_CASE("GPT agrees with the NumPy reference") {
  check_model("gpt");
  check_model("gpt_dropout");  // grouped queries, exact GeLU, untied
}
