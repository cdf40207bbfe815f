// SPDX-License-Identifier: Apache-2.0
/// Attention of model shapes, in a packed tensor, with and without document masks, against the CPU's kernels in fp64 on
/// the same numbers.
#include "llmtrain/backend/workspace.hpp"
#include "pair.hpp"

using namespace llmtrain;
using namespace llmtrain::test;

namespace {

struct Setup {
  AttentionShape shape;
  std::int64_t window = 0;
};

/// Where documents begin besides the beginning of each sequence.
struct Mask {
  const char* name;
  bool (*begins)(std::int64_t place, Random& random);  ///< null: no mask
};

constexpr Mask masks[] = {
    {"no mask", nullptr},
    {"a document a sequence", [](std::int64_t, Random&) { return false; }},
    {"documents of 64 tokens", [](std::int64_t place, Random&) { return place % 64 == 0; }},
    {"a token before 128", [](std::int64_t place, Random&) { return place % 128 == 127; }},
    {"documents of two tokens", [](std::int64_t place, Random&) { return place % 2 == 0; }},
    {"random documents", [](std::int64_t, Random& random) { return random.below(30) == 0; }},
    {"as many others", [](std::int64_t, Random& random) { return random.below(30) == 0; }},
    {"a token before and after 64", [](std::int64_t place, Random&) { return place % 64 == 63 || place % 64 == 1; }},
    {"documents of one token", [](std::int64_t, Random&) { return true; }},
};

/// A call on both sides. Behind the last token of the packed tensors come `tail` rows of NaN, in the same memory.
template <class T>
struct Case {
  Case(const Setup& setup, const Mask& mask, Random& random, std::int64_t tail_rows = 0)
      : s(setup.shape), tail(tail_rows), starts({tokens}) {
    options = {.shape = s, .scale = 1 / std::sqrt(static_cast<double>(s.head_dim)), .window = setup.window};
    masked = mask.begins != nullptr;
    for (std::int64_t i = 0; i < tokens; ++i) {
      const std::int64_t place = i % s.sequence;
      const bool begins = place == 0 || (masked && mask.begins(place, random));
      starts.at(i) = begins ? static_cast<std::int32_t>(place) : starts.at(i - 1);
      options.documents += begins ? 1 : 0;
    }
    for (Pair<T>* x : {&forward, &backward}) {
      const std::int64_t cols = x == &forward ? q + 2 * kv : q;
      for (std::int64_t row = 0; row < tokens; ++row) {
        for (std::int64_t col = 0; col < cols; ++col) {
          x->tested.at(row, col) = static_cast<T>(random.normal());
          x->exact.at(row, col) = static_cast<double>(x->tested.at(row, col));
        }
      }
    }
  }

  Tensor heads(Tensor t, std::int64_t col, std::int64_t row, std::int64_t count) const {
    return t.rows_at(row, tokens).cols_at(col, count * s.head_dim).with_inner({count, s.head_dim});
  }
  /// `x`: [qkv | out] with out `tail` rows lower; `dx`: [d_out | d_qkv] likewise.
  void call(Kernels& k, Tensor x, Tensor dx, Tensor lse, Tensor workspace, bool is_backward) {
    const Tensor qs = heads(x, 0, 0, s.heads), ks = heads(x, q, 0, s.kv_heads), vs = heads(x, q + kv, 0, s.kv_heads);
    const Tensor out = heads(x, q + 2 * kv, tail, s.heads), mask = masked ? starts.tensor() : Tensor{};
    if (!is_backward) return k.attention_forward(stream, out, lse, qs, ks, vs, mask, options);
    k.attention_backward(stream, heads(dx, q, tail, s.heads), heads(dx, 2 * q, tail, s.kv_heads),
                         heads(dx, 2 * q + kv, tail, s.kv_heads), heads(dx, 0, 0, s.heads), qs, ks, vs, out, lse, mask,
                         options, workspace);
  }
  void both(bool is_backward) {
    call(kernels(), forward.tested.tensor(), backward.tested.tensor(), lse.tested.tensor(), own.tensor(), is_backward);
    // head_dim above 128 is not for every GPU
    if (std::is_same_v<T, Bf16> && s.head_dim <= 128) CHECK(kernels().attention_refusal() == "");
    if (std::is_same_v<T, Bf16> && s.head_dim > 128) WARN(kernels().attention_refusal() == "");
    call(reference(), forward.exact.tensor(), backward.exact.tensor(), lse.exact.tensor(), theirs.tensor(),
         is_backward);
  }
  /// `rows` rows from `row` on, `cols` columns from `col` on.
  static Pair<T> part(const Pair<T>& x, std::int64_t row, std::int64_t rows, std::int64_t col, std::int64_t cols) {
    Pair<T> result({rows, cols});
    for (std::int64_t i = 0; i < rows; ++i) {
      for (std::int64_t j = 0; j < cols; ++j) {
        result.tested.at(i, j) = x.tested.at(row + i, col + j);
        result.exact.at(i, j) = x.exact.at(row + i, col + j);
      }
    }
    return result;
  }

  void check() {
    both(false);
    // With matrix units, probabilities and gradients of scores are rounded to the data's type before they meet v, q, k:
    // errors of single elements follow the sum of p |v|, while out, whose rms bounds them, averages down.
    const Pair<T> out = part(forward, tail, tokens, q + 2 * kv, q);
    out.check("out", 4 * tolerance<T>);
    CHECK(relative_distance(out) < tolerance<T>);
    lse.check("lse", tolerance<StatsOf<T>>);
    for (std::int64_t i = 0; i < forward.tested.numel(); ++i) {  // the gradient is that of the output as stored
      forward.exact.flat(i) = static_cast<double>(forward.tested.flat(i));
    }
    both(true);
    const Pair<T> gradients = part(backward, tail, tokens, q, q + 2 * kv);
    gradients.check("gradients", 16 * tolerance<T>);  // single elements; and as a whole:
    CHECK(relative_distance(gradients) < 2 * tolerance<T>);
  }

  AttentionShape s;
  std::int64_t tail;
  std::int64_t tokens = s.batch * s.sequence, q = s.heads * s.head_dim, kv = s.kv_heads * s.head_dim;
  AttentionOptions options;
  bool masked = false;
  Buffer<std::int32_t> starts;
  Pair<T> forward{{tokens + tail, 2 * q + 2 * kv}}, backward{{tokens + tail, 2 * q + 2 * kv}};
  Pair<StatsOf<T>> lse{{s.heads, tokens}};
  Buffer<std::uint8_t> own = space(attention_backward_workspace(device_kind(), s, dtype_of<StatsOf<T>>, true));
  Buffer<std::uint8_t> theirs = space(attention_backward_workspace(DeviceKind::cpu, s, DType::fp64, true));
};

}  // namespace

TEST_CASE_TEMPLATE("attention of model shapes, with and without document masks", T, Bf16, float) {
  Random random(5);
  for (const Setup& setup : {Setup{{3, 192, 4, 4, 64}}, Setup{{2, 200, 6, 2, 128}}, Setup{{1, 77, 2, 1, 256}},
                             Setup{{2, 256, 4, 1, 64}, 100}, Setup{{5, 130, 4, 2, 80}}}) {
    const AttentionShape& s = setup.shape;
    INFO("batch ", s.batch, " sequence ", s.sequence, " heads ", s.heads, "/", s.kv_heads, " head_dim ", s.head_dim,
         " window ", setup.window);
    for (const Mask& mask : masks) {
      INFO(mask.name);
      Case<T>(setup, mask, random).check();
    }
  }
}

TEST_CASE_TEMPLATE("attention does not take in what lies behind the last token", T, Bf16, float) {
  Random random(6);
  for (const Setup& setup : {Setup{{2, 200, 4, 2, 64}}, Setup{{1, 77, 4, 4, 128}}}) {
    for (const Mask& mask : masks) {
      INFO(mask.name);
      Case<T>(setup, mask, random, 160).check();
    }
  }
}
