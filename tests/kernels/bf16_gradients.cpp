// SPDX-License-Identifier: Apache-2.0
/// Gradients of bf16 data in bf16 accumulators: the sum that an fp32 accumulator gets, rounded once.
#include "kernels.hpp"
#include "llmtrain/backend/workspace.hpp"

using namespace llmtrain;
using namespace llmtrain::test;

namespace {

constexpr std::int64_t tokens = 150, cols = 72;

/// Workspace of an operation on the device under test.
Buffer<std::uint8_t> workspace_of(std::int64_t bytes) {
  return Buffer<std::uint8_t>({std::max<std::int64_t>(bytes, 1)});
}

/// Runs `operation(accumulator, write)` into an fp32 and a bf16 accumulator with equal contents, overwriting and adding,
/// and checks that the second is the first one rounded: elementwise within one unit in the last place, what another order
/// of fp32 additions makes of sums that cancel, and, where it adds, what a library loses that rounds the addend too.
template <class F>
void check_rounded_once(const char* name, std::vector<std::int64_t> shape, F&& operation) {
  INFO(name);
  Random random(7);
  for (const Write write : {Write::overwrite, Write::accumulate}) {
    CAPTURE(write == Write::accumulate);
    auto narrow = Buffer<Bf16>::random(random, shape);
    Buffer<float> wide(shape);
    for (std::int64_t i = 0; i < wide.numel(); ++i) wide.flat(i) = narrow.flat(i);
    const auto before = narrow;
    operation(wide.tensor(), write);
    operation(narrow.tensor(), write);
    CHECK_FALSE(narrow.same_bits(before));
    std::int64_t wrong = 0;
    for (std::int64_t i = 0; i < wide.numel(); ++i) {
      const float expected = wide.flat(i), got = narrow.flat(i);
      const float addend = write == Write::accumulate ? expected - before.flat(i) : 0;
      const float bound =
          std::abs(expected) * 0x1p-8F + std::abs(addend) * 0x1p-8F + static_cast<float>(tokens) * 0x1p-20F;
      if (!(std::abs(got - expected) <= bound)) ++wrong;
    }
    CHECK(wrong == 0);
    CHECK(narrow.gaps_intact());
  }
}

}  // namespace

TEST_CASE("a weight gradient in bf16") {
  Random random(1);
  auto d_y = Buffer<Bf16>::random(random, {tokens, 40}), x = Buffer<Bf16>::random(random, {tokens, cols});
  check_rounded_once("gemm", {40, cols}, [&](Tensor d, Write write) {
    kernels().gemm(stream, GemmForm::tn, d, d_y.tensor(), x.tensor(), write);
  });
}

TEST_CASE("gradients of norms, biases and embeddings in bf16") {
  Random random(2);
  auto x = Buffer<Bf16>::random(random, {tokens, cols}), d_y = Buffer<Bf16>::random(random, {tokens, cols});
  auto weight = Buffer<Bf16>::random(random, {cols}), bias = Buffer<Bf16>::random(random, {cols});
  Buffer<Bf16> y({tokens, cols}), d_x({tokens, cols});
  Buffer<float> mean({tokens}), rstd({tokens});

  kernels().rms_norm_forward(stream, y.tensor(), {}, rstd.tensor(), x.tensor(), {}, weight.tensor(), 1e-5);
  auto rms_space = workspace_of(norm_backward_workspace(device_kind(), tokens, cols, DType::fp32));
  check_rounded_once("rms_norm_backward", {cols}, [&](Tensor d, Write write) {
    kernels().rms_norm_backward(stream, d_x.tensor(), d, {}, d_y.tensor(), x.tensor(), rstd.tensor(), weight.tensor(),
                                write, rms_space.tensor());
  });

  kernels().layer_norm_forward(stream, y.tensor(), {}, mean.tensor(), rstd.tensor(), x.tensor(), {}, weight.tensor(),
                               bias.tensor(), 1e-5);
  auto space = workspace_of(layer_norm_backward_workspace(device_kind(), tokens, cols, DType::fp32));
  for (const bool of_bias : {false, true}) {
    check_rounded_once("layer_norm_backward", {cols}, [&](Tensor d, Write write) {
      Buffer<float> other({cols});
      other.fill(0);
      const Tensor d_weight = of_bias ? other.tensor() : d, d_bias = of_bias ? d : other.tensor();
      kernels().layer_norm_backward(stream, d_x.tensor(), d_weight, d_bias, {}, d_y.tensor(), x.tensor(), mean.tensor(),
                                    rstd.tensor(), weight.tensor(), write, space.tensor());
    });
  }

  check_rounded_once("bias_gradient", {cols},
                     [&](Tensor d, Write write) { kernels().bias_gradient(stream, d, d_y.tensor(), write); });

  constexpr std::int64_t rows = 90;
  auto ids = Buffer<std::int32_t>::integers(random, {tokens}, 0, rows / 3);  // each many times
  Buffer<std::int32_t> order({tokens});
  std::vector<std::int32_t> sorted(static_cast<std::size_t>(tokens));
  for (std::int64_t i = 0; i < tokens; ++i) sorted[static_cast<std::size_t>(i)] = static_cast<std::int32_t>(i);
  std::stable_sort(sorted.begin(), sorted.end(), [&](std::int32_t a, std::int32_t b) { return ids.at(a) < ids.at(b); });
  for (std::int64_t i = 0; i < tokens; ++i) order.at(i) = sorted[static_cast<std::size_t>(i)];
  for (const bool by_order : {true, false}) {
    check_rounded_once("embedding_backward", {rows, cols}, [&](Tensor d, Write write) {
      kernels().embedding_backward(stream, d, d_y.tensor(), ids.tensor(), by_order ? order.tensor() : Tensor{},
                                   {0, rows}, write);
    });
  }
}

TEST_CASE("terms of another type are added in fp32") {
  Random random(3);
  auto narrow = Buffer<Bf16>::random(random, {tokens, cols});
  const auto wide = Buffer<float>::random(random, {tokens, cols});
  auto sum = narrow;
  auto terms = wide;
  std::vector<double> expected = narrow.values();
  for (std::int64_t i = 0; i < narrow.numel(); ++i) expected[static_cast<std::size_t>(i)] += wide.flat(i);
  const Tensor wide_term = terms.tensor().flat(), narrow_term = narrow.tensor().flat();
  kernels().sum_parts(stream, sum.tensor(), std::span(&wide_term, 1), Write::accumulate);
  check_close("bf16 += fp32", sum, expected, tolerance<Bf16>);
  kernels().sum_parts(stream, terms.tensor(), std::span(&narrow_term, 1), Write::accumulate);
  check_close("fp32 += bf16", terms, expected, tolerance<float>);
}
