// SPDX-License-Identifier: Apache-2.0
/// The public calls: refusals name the operation, the rule and the tensors; notes list what is written and read, and
/// the FLOPs.
#include "kernels.hpp"
#include "llmtrain/backend/workspace.hpp"

using namespace llmtrain;
using namespace llmtrain::test;

namespace {

/// A tensor for calls that must not be reached.
Tensor shape_only(std::initializer_list<std::int64_t> shape, DType dtype = DType::fp32) {
  static double storage[4096];
  return Tensor::dense(storage, dtype, shape);
}

}  // namespace

TEST_CASE("a refused call says which operation, rule and tensors") {
  try {
    kernels().add(stream, shape_only({4, 8}), shape_only({4, 8}), shape_only({4, 7}));
    FAIL("add took unequal shapes");
  } catch (const Error& e) {
    CHECK(e.code() == ExitCode::internal);
    const std::string message = e.what();
    for (const char* part : {"add: ", "one shape", "out fp32 [4, 8]", "b fp32 [4, 7]"}) {
      CHECK_MESSAGE(message.find(part) != std::string::npos, message);
    }
  }
}

TEST_CASE("wrong shapes and dtypes are refused") {
  const DType i32 = DType::int32;
  Tensor narrow = shape_only({4, 8});
  narrow.leading = 7;
  CHECK_THROWS_WITH(kernels().fill(stream, narrow, 0), doctest::Contains("rows must not overlap"));
  CHECK_THROWS_AS(kernels().fill(stream, {}, 0), Error);
  CHECK_THROWS_AS(kernels().copy(stream, shape_only({4}), shape_only({4}, i32)), Error);
  CHECK_THROWS_AS(kernels().gemm(stream, GemmForm::nt, shape_only({2, 3}), shape_only({2, 4}), shape_only({4, 3})),
                  Error);
  CHECK_THROWS_AS(kernels().gemm(stream, GemmForm::nn, shape_only({2, 3}), shape_only({2, 4}), shape_only({3, 4})),
                  Error);
  CHECK_THROWS_AS(kernels().gemm(stream, GemmForm::tn, shape_only({2, 3}), shape_only({2, 4}), shape_only({4, 3})),
                  Error);
  CHECK_THROWS_AS(kernels().embedding_forward(stream, shape_only({4, 8}), shape_only({4}), shape_only({9, 8}), {0, 9}),
                  Error);
  CHECK_THROWS_AS(
      kernels().embedding_forward(stream, shape_only({4, 8}), shape_only({4}, i32), shape_only({9, 8}), {0, 10}),
      Error);
  CHECK_THROWS_AS(kernels().rms_norm_forward(stream, shape_only({4, 8}), {}, shape_only({4}), shape_only({4, 8}),
                                             shape_only({4, 8}), shape_only({8}), 1e-5),
                  Error);  // delta without residual
  CHECK_THROWS_AS(
      kernels().rope(stream, shape_only({4, 2, 5}), shape_only({4, 2, 2}), shape_only({4}, i32), Rotation::forward),
      Error);
  CHECK_THROWS_AS(kernels().swiglu_forward(stream, shape_only({4, 8}), shape_only({4, 8})), Error);
  CHECK_THROWS_AS(
      kernels().cross_entropy_stats(stream, shape_only({2, 4}), shape_only({4, 8}), shape_only({4}, i32), {0, 8}),
      Error);
  CHECK_THROWS_AS(kernels().cross_entropy_with_gradient(stream, shape_only({3, 4}), shape_only({4, 8}),
                                                        shape_only({4}, i32), shape_only({3}), {0, 8}),
                  Error);
  CHECK_THROWS_WITH(kernels().cross_entropy_merge(stream, shape_only({3, 4}), shape_only({2, 12})),
                    doctest::Contains("parts must be dense [ranks, 3, tokens]"));
  CHECK_THROWS_AS(kernels().sum_squares(stream, shape_only({4}), shape_only({9})), Error);
  const AttentionOptions options{.shape = {.batch = 1, .sequence = 4, .heads = 3, .kv_heads = 2, .head_dim = 4}};
  CHECK_THROWS_WITH(
      kernels().attention_forward(stream, shape_only({4, 3, 4}), shape_only({3, 4}), shape_only({4, 3, 4}),
                                  shape_only({4, 2, 4}), shape_only({4, 2, 4}), {}, options),
      doctest::Contains("kv_heads must divide heads"));
  CHECK_THROWS_WITH(kernels().swiglu_forward(stream, shape_only({4, 8}, DType::fp16), shape_only({4, 16}, DType::fp16)),
                    doctest::Contains("fp16"));
}

TEST_CASE("notes list destinations of accumulation on both sides and leave absent tensors out") {
  Random random(1);
  auto y = Buffer<float>::random(random, {3, 4}), x = Buffer<float>::random(random, {3, 4});
  auto w = Buffer<float>::random(random, {4});
  Buffer<float> out({3, 4}), rstd({3});
  Notes notes;
  const Tensor part = x.tensor();
  kernels().sum_parts(stream, y.tensor(), std::span(&part, 1), Write::accumulate);
  kernels().rms_norm_forward(stream, out.tensor(), {}, rstd.tensor(), x.tensor(), {}, w.tensor(), 1e-5);
  REQUIRE(notes.notes.size() == 2);
  CHECK(notes.notes[0].name == "sum_parts");
  REQUIRE(notes.notes[0].writes.size() == 1);
  CHECK(notes.notes[0].writes[0].data == y.tensor().data);
  REQUIRE(notes.notes[0].reads.size() == 2);
  CHECK(notes.notes[0].reads[1].data == y.tensor().data);
  CHECK(notes.notes[1].writes.size() == 2);
  CHECK(notes.notes[1].reads.size() == 2);
}

TEST_CASE("FLOPs of matrix products and of causal attention") {
  Random random(2);
  auto a = Buffer<float>::random(random, {5, 7}), b = Buffer<float>::random(random, {3, 7});
  Buffer<float> d({5, 3});
  const auto flops = [&](std::int64_t window) {
    const std::int64_t batch = 2, sequence = 5, heads = 2, head_dim = 4;
    auto q = Buffer<float>::random(random, {batch * sequence, heads, head_dim});
    auto k = Buffer<float>::random(random, {batch * sequence, 1, head_dim}), v = k;
    Buffer<float> out({batch * sequence, heads, head_dim}), lse({heads, batch * sequence});
    AttentionOptions options{.shape = {batch, sequence, heads, 1, head_dim}, .scale = 0.5, .window = window};
    Notes notes;
    kernels().attention_forward(stream, out.tensor(), lse.tensor(), q.tensor(), k.tensor(), v.tensor(), {}, options);
    return notes.notes.at(0).flops;
  };
  {
    Notes notes;
    kernels().gemm(stream, GemmForm::nt, d.tensor(), a.tensor(), b.tensor());
    CHECK(notes.notes.at(0).flops == 2 * 5 * 3 * 7);
    CHECK(notes.notes.at(0).reads.size() == 2);
  }
  CHECK(flops(0) == 4 * 2 * 4 * (2 * 15));
  CHECK(flops(9) == 4 * 2 * 4 * (2 * 15));
  CHECK(flops(2) == 4 * 2 * 4 * (2 * (1 + 2 + 2 + 2 + 2)));
}

TEST_CASE("workspaces") {
  CHECK(norm_backward_workspace(DeviceKind::cuda, 1000, 10, DType::fp32) == 264 * 10 * 4);
  CHECK(norm_backward_workspace(DeviceKind::cuda, 7, 10, DType::fp32) == 7 * 10 * 4);
  CHECK(norm_backward_workspace(DeviceKind::cpu, 7, 10, DType::fp64) == 7 * 10 * 8);
  CHECK(attention_backward_workspace(DeviceKind::cpu, {2, 5, 3, 1, 8}, DType::fp64) == 2 * 5 * 3 * 8);
  constexpr std::int64_t large = std::int64_t{1} << 40;
  CHECK(communicator_workspace(DeviceKind::cpu, 1, large) == 0);
  CHECK(communicator_workspace(DeviceKind::cpu, 3, large) == 2 << 20);
  CHECK(communicator_workspace(DeviceKind::cpu, 3, 32) == 2 * 64);
  CHECK(communicator_workspace(DeviceKind::cpu, 65, large) == 64 * 256 << 10);
  CHECK(communicator_workspace(DeviceKind::cpu, 1025, large) == 1024 * 64 << 10);
  CHECK(communicator_workspace(DeviceKind::cuda, 8, large) == 0);
  CHECK(channel_workspace(DeviceKind::cpu, large, true, true) == communicator_workspace(DeviceKind::cpu, 2, 0));
  CHECK(channel_workspace(DeviceKind::cuda, large, true, true) == large);
  CHECK(channel_workspace(DeviceKind::cuda, large, true, false) == 0);
  CHECK(channel_workspace(DeviceKind::cuda, large, false, true) == 0);
}

TEST_CASE("operations on no tokens do nothing, and overwrite sums with zero") {
  Random random(3);
  const std::int64_t hidden = 8;
  Buffer<float> x({0, hidden}), y({0, hidden}), rstd({0}), logits({0, 5}), stats({3, 0}), weights({0});
  auto w = Buffer<float>::random(random, {hidden});
  Buffer<float> d_weight({hidden}), d_table({4, hidden});
  Buffer<std::int32_t> ids({0});
  Buffer<double> totals({4});
  totals.fill(1);
  kernels().rms_norm_forward(stream, y.tensor(), {}, rstd.tensor(), x.tensor(), {}, w.tensor(), 1e-5);
  kernels().rms_norm_backward(stream, y.tensor(), d_weight.tensor(), {}, x.tensor(), x.tensor(), rstd.tensor(),
                              w.tensor(), Write::overwrite, {});
  check_close("d_weight", d_weight, std::vector<double>(8, 0.0), 0);
  kernels().embedding_backward(stream, d_table.tensor(), x.tensor(), ids.tensor(), ids.tensor(), {0, 4},
                               Write::overwrite);
  check_close("d_table", d_table, std::vector<double>(32, 0.0), 0);
  kernels().cross_entropy_stats(stream, stats.tensor(), logits.tensor(), ids.tensor(), {0, 5});
  kernels().cross_entropy_with_gradient(stream, stats.tensor(), logits.tensor(), ids.tensor(), weights.tensor(),
                                        {0, 5});
  kernels().cross_entropy_loss(stream, totals.tensor(), stats.tensor(), weights.tensor());
  kernels().add(stream, y.tensor(), x.tensor(), x.tensor());
  kernels().sum_squares(stream, totals.tensor(), x.tensor().reshaped({0}));
  check_close("totals", totals, std::vector<double>(4, 1.0), 0);
}
