// SPDX-License-Identifier: Apache-2.0
// ranks: 1 2
/// What is computed again and in which precision, on whole tiny models: recompute policies change no bit, bf16 stays
/// near fp32, and its weights are the rounded fp32 masters through steps, ZeRO levels and a resume.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

#include "llmtrain/base/bf16.hpp"
#include "llmtrain/driver/state.hpp"
#include "support/tiny_run.hpp"

using namespace llmtrain;

namespace {

std::int64_t activations(const TinyRun& run) { return run.measured.plan.bytes(Segment::activations); }

double norm_of(std::span<const float> x) {
  double sum = 0;
  for (const double v : x) sum += v * v;
  return std::sqrt(sum);
}

}  // namespace

TEST_CASE("recompute policies change no bit and take less memory") {
  using Modules = std::vector<std::string>;
  for (const ModelConfig& model : {tiny_llama(), tiny_gpt()}) {
    for (const auto& [compute, linear] : {std::pair(Compute::fp32, LinearProducts::compute),
                                          {Compute::bf16, LinearProducts::compute},
                                          {Compute::bf16, LinearProducts::fp8}}) {
      for (const int zero : {0, 1}) {
        CAPTURE(zero);
        Deck none = tiny_deck(model, compute, zero);
        none.precision.linear = linear;
        TinyRun expected(none);
        for (std::int64_t n = 1; n <= 2; ++n) expected.step(n);
        const std::vector<char> state = expected.state();
        for (const Modules& modules : {Modules{"norm"},
                                       {"activation"},
                                       {"attention"},
                                       {"mlp"},
                                       {"norm", "activation", "attention", "mlp"},
                                       {"block"}}) {
          CAPTURE(modules.front());
          Deck deck = none;
          deck.schedule.recompute = modules.front() == "block" ? Recompute::block : Recompute::selective;
          deck.schedule.recompute_modules = modules;
          TinyRun run(deck);
          for (std::int64_t n = 1; n <= 2; ++n) run.step(n);
          CHECK(run.state() == state);
          CHECK(activations(run) < activations(expected));
        }
      }
    }
  }
}

TEST_CASE("the plan of many blocks shows what recompute saves") {
  Deck deck = tiny_deck(tiny_llama(), Compute::fp32, 0);
  deck.model.layers = 12;
  const auto activations = [&](Recompute recompute, std::vector<std::string> modules) {
    deck.schedule.recompute = recompute;
    deck.schedule.recompute_modules = std::move(modules);
    const Measured m = measure(deck, Topology(deck, MpiComm::world().size()), 0, DeviceKind::cpu);
    return std::pair(m.plan.bytes(Segment::activations), m.plan.bytes(Segment::scratch));
  };
  const auto [none, none_scratch] = activations(Recompute::none, {});
  const std::int64_t tokens = 48, wide = 4 * tokens;  // bytes of a column
  CHECK(none - activations(Recompute::selective, {"norm"}).first == 12 * 2 * 64 * wide);
  CHECK(none - activations(Recompute::selective, {"activation"}).first == 12 * 96 * wide);
  CHECK(none - activations(Recompute::selective, {"mlp"}).first == 12 * 3 * 96 * wide);
  CHECK(none - activations(Recompute::selective, {"attention"}).first == 12 * (64 + 4) * wide);
  const auto [block, block_scratch] = activations(Recompute::block, {});
  CHECK(block + block_scratch < (none + none_scratch) / 2);

  // In fp8 outputs of norms and of the activation are kept in a byte an element, with a scale each.
  deck.precision.compute = Compute::bf16;
  const auto wide_products = activations(Recompute::none, {});
  deck.precision.linear = LinearProducts::fp8;
  CHECK(wide_products.first - activations(Recompute::none, {}).first ==
        12 * ((2 * 64 + 96) * tokens - 3 * memory_alignment));
}

TEST_CASE("loss and gradients in bf16 are near those in fp32 of the same weights") {
  for (const ModelConfig& model : {tiny_llama(), tiny_gpt()}) {
    TinyRun narrow(tiny_deck(model, Compute::bf16, 0)), wide(tiny_deck(model, Compute::fp32, 0));
    for (int i = 0; i < wide.parts.shape.storages(); ++i) {
      wide.parts.kernels.convert(wide.parts.stream, wide.parts.params.master(i), narrow.parts.params.whole(i));
    }
    run_gradients(narrow.parts, narrow.load, narrow.timers);
    run_gradients(wide.parts, wide.load, wide.timers);
    const double loss = wide.parts.totals.ptr<double>()[0];
    CHECK(std::abs(narrow.parts.totals.ptr<double>()[0] - loss) <= 3e-2 * loss);
    CHECK(narrow.parts.totals.ptr<double>()[0] != loss);
    const double whole = std::sqrt(wide.parts.totals.ptr<double>()[2]);
    const double count = static_cast<double>(wide.parts.table.parameters());
    for (int i = 0; i < wide.parts.shape.storages(); ++i) {
      const StorageLayout& layout = wide.parts.shape.layouts[static_cast<std::size_t>(i)];
      const float *const a = narrow.parts.grads.flat(i).ptr<float>(), *const b = wide.parts.grads.flat(i).ptr<float>();
      for (const SectionRange& range : section_ranges(layout, 0, layout.padded)) {
        const std::string& name = wide.parts.table.storages[static_cast<std::size_t>(i)]
                                      .sections[static_cast<std::size_t>(range.section)]
                                      .name;
        CAPTURE(name);
        // Without rotation a key bias moves all scores of a query alike: its gradient is zero, and what rounding leaves
        // is compared with the gradients of q, k and v biases together.
        const bool zero = name.ends_with("k_proj.bias") && model.positions != Positions::rope;
        const std::int64_t n = range.flat_end - range.flat_begin;
        const std::span<const float> reference = zero ? std::span(b, static_cast<std::size_t>(layout.numel()))
                                                      : std::span(b + range.offset, static_cast<std::size_t>(n));
        std::vector<float> difference;
        for (std::int64_t k = range.offset; k < range.offset + n; ++k) difference.push_back(a[k] - b[k]);
        const double share = std::sqrt(static_cast<double>(n) / count);
        CHECK(norm_of(difference) <= 3e-2 * (norm_of(reference) + 1e-3 * whole * share));
      }
    }
  }
}

TEST_CASE("bf16 weights are the rounded masters, whatever the ZeRO level") {
  TinyRun whole(tiny_deck(tiny_llama(), Compute::bf16, 0)), chunked(tiny_deck(tiny_llama(), Compute::bf16, 1));
  for (std::int64_t n = 0; n <= 3; ++n) {
    if (n > 0) {
      whole.step(n);
      chunked.step(n);
    }
    for (int i = 0; i < whole.parts.shape.storages(); ++i) {
      CAPTURE(i);
      for (TinyRun* run : {&whole, &chunked}) {
        const Tensor master = run->parts.params.master(i), published = run->parts.params.published(i);
        REQUIRE(master.numel() == published.numel());
        std::int64_t wrong = 0;
        for (std::int64_t k = 0; k < master.numel(); ++k) {
          wrong += published.ptr<Bf16>()[k].bits != Bf16(master.ptr<float>()[k]).bits;
        }
        CHECK(wrong == 0);
      }
    }
    CHECK(whole.weights() == chunked.weights());
  }
}

TEST_CASE("a state of fp32 masters carries a bf16 run on to the same bits") {
  for (const int zero : {0, 1}) {
    CAPTURE(zero);
    const Deck deck = tiny_deck(tiny_llama(), Compute::bf16, zero);
    TinyRun first(deck), second(deck);
    for (std::int64_t n = 1; n <= 2; ++n) first.step(n);
    second.step(1);  // anything else
    StateMirror from(first.parts, StatePart::updated), to(second.parts, StatePart::updated);
    REQUIRE(from.pieces().size() == to.pieces().size());
    for (std::size_t i = 0; i < from.pieces().size(); ++i) {
      const Piece &source = from.pieces()[i], &destination = to.pieces()[i];
      CHECK(source.dtype == DType::fp32);
      std::memcpy(destination.data, source.data, static_cast<std::size_t>(4 * (source.flat_end - source.flat_begin)));
    }
    to.upload();
    first.step(3);
    second.step(3);
    CHECK(first.state() == second.state());
  }
}
