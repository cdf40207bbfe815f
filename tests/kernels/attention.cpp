// SPDX-License-Identifier: Apache-2.0
/// Attention against plain loops in fp64, gradients against differences, causality, and equal bits at any number of
/// threads.
#include "kernels.hpp"
#include "llmtrain/backend/workspace.hpp"

using namespace llmtrain;
using namespace llmtrain::test;

namespace {

struct Setup {
  AttentionShape shape;
  std::int64_t window = 0;
  double soft_cap = 0;
  bool documents = false;
  bool packed = true;  // q, k, v are slices of one tensor
};

/// One call with everything it reads and writes; outputs start as NaN.
template <class T>
struct Case {
  explicit Case(const Setup& setup, std::uint64_t seed = 1)
      : shape(setup.shape), random(seed), tokens(shape.batch * shape.sequence) {
    options.shape = shape;
    options.scale = 1 / std::sqrt(static_cast<double>(shape.head_dim));
    options.window = setup.window;
    options.soft_cap = setup.soft_cap;
    for (std::int64_t i = 0; i < tokens; ++i) {  // documents of a few tokens
      const std::int64_t at = i % shape.sequence;
      const bool begins = at == 0 || random.below(9) == 0;
      starts.at(i) = begins ? static_cast<std::int32_t>(at) : starts.at(i - 1);
      options.documents += begins ? 1 : 0;
    }
    use_starts = setup.documents;
  }

  std::int64_t dim() const { return shape.head_dim; }
  std::int64_t q_cols() const { return shape.heads * dim(); }
  std::int64_t kv_cols() const { return shape.kv_heads * dim(); }
  /// q, k or v (part 0, 1, 2) of a packed tensor.
  Tensor part(Buffer<T>& x, int index) const {
    if (index == 0) return x.tensor().cols_at(0, q_cols()).with_inner({shape.heads, dim()});
    return x.tensor().cols_at(q_cols() + (index - 1) * kv_cols(), kv_cols()).with_inner({shape.kv_heads, dim()});
  }
  Tensor heads(Buffer<T>& x) const { return x.tensor().with_inner({shape.heads, dim()}); }
  Tensor masks() { return use_starts ? starts.tensor() : Tensor{}; }

  void forward() {
    kernels().attention_forward(stream, heads(out), lse.tensor(), part(qkv, 0), part(qkv, 1), part(qkv, 2), masks(),
                                options);
  }
  void backward() {
    kernels().attention_backward(stream, part(d_qkv, 0), part(d_qkv, 1), part(d_qkv, 2), heads(d_out), part(qkv, 0),
                                 part(qkv, 1), part(qkv, 2), heads(out), lse.tensor(), masks(), options,
                                 workspace.tensor());
  }

  AttentionShape shape;
  Random random;
  std::int64_t tokens;
  AttentionOptions options;
  bool use_starts = false;
  // Leading dimensions beyond the columns, so that gaps are checked.
  Buffer<T> qkv = Buffer<T>::random(random, {tokens, q_cols() + 2 * kv_cols()}, q_cols() + 2 * kv_cols() + 3);
  Buffer<T> d_out = Buffer<T>::random(random, {tokens, q_cols()}, q_cols() + 1);
  Buffer<std::int32_t> starts{{tokens}};
  Buffer<T> out{{tokens, q_cols()}, q_cols() + 5};
  Buffer<StatsOf<T>> lse{{shape.heads, tokens}, tokens + 2};
  Buffer<T> d_qkv{{tokens, q_cols() + 2 * kv_cols()}, q_cols() + 2 * kv_cols() + 2};
  Buffer<std::uint8_t> workspace{
      {std::max<std::int64_t>(attention_backward_workspace(device_kind(), shape, dtype_of<StatsOf<T>>), 1)}};
};

/// Plain loops over all pairs of tokens, in fp64. The case's forward has run: gradients are those of its output as stored.
struct Reference {
  std::vector<double> out, lse, d_qkv;

  template <class T>
  explicit Reference(const Case<T>& c)
      : out(static_cast<std::size_t>(c.out.numel())),
        lse(static_cast<std::size_t>(c.lse.numel())),
        d_qkv(static_cast<std::size_t>(c.d_qkv.numel())) {
    for (std::int64_t batch = 0; batch < c.shape.batch; ++batch)
      for (std::int64_t head = 0; head < c.shape.heads; ++head)
        for (std::int64_t i = 0; i < c.shape.sequence; ++i) attend(c, batch * c.shape.sequence, head, i);
  }

 private:
  template <class T>
  void attend(const Case<T>& c, std::int64_t base, std::int64_t head, std::int64_t i) {
    const std::int64_t dim = c.dim(), cols = c.qkv.cols(), row = base + i;
    const std::int64_t q_at = head * dim;
    const std::int64_t k_at = c.q_cols() + head / (c.shape.heads / c.shape.kv_heads) * dim;
    const std::int64_t v_at = k_at + c.kv_cols();
    std::int64_t first = c.use_starts ? c.starts.at(row) : 0;
    if (c.options.window > 0) first = std::max(first, i - c.options.window + 1);
    std::vector<double> score, slope;
    double sum = 0;
    for (std::int64_t j = first; j <= i; ++j) {
      double s = 0;
      for (std::int64_t d = 0; d < dim; ++d)
        s += static_cast<double>(c.qkv.at(row, q_at + d)) * c.qkv.at(base + j, k_at + d);
      s *= c.options.scale;
      const double cap = c.options.soft_cap;
      const double t = cap > 0 ? std::tanh(s / cap) : 0;
      score.push_back(std::exp(cap > 0 ? cap * t : s));
      slope.push_back(c.options.scale * (1 - t * t));
      sum += score.back();
    }
    lse[static_cast<std::size_t>(head * c.tokens + row)] = std::log(sum);
    double* o = &out[static_cast<std::size_t>(row * c.q_cols() + q_at)];
    double delta = 0;
    for (std::int64_t d = 0; d < dim; ++d) {
      for (std::int64_t j = first; j <= i; ++j)
        o[d] += score[static_cast<std::size_t>(j - first)] / sum * c.qkv.at(base + j, v_at + d);
      delta += static_cast<double>(c.out.at(row, q_at + d)) * static_cast<double>(c.d_out.at(row, q_at + d));
    }
    for (std::int64_t j = first; j <= i; ++j) {
      const auto at = static_cast<std::size_t>(j - first);
      const double p = score[at] / sum;
      double d_p = 0;
      for (std::int64_t d = 0; d < dim; ++d)
        d_p += static_cast<double>(c.d_out.at(row, q_at + d)) * c.qkv.at(base + j, v_at + d);
      const double d_s = p * (d_p - delta) * slope[at];
      for (std::int64_t d = 0; d < dim; ++d) {
        d_qkv[static_cast<std::size_t>(row * cols + q_at + d)] += d_s * c.qkv.at(base + j, k_at + d);
        d_qkv[static_cast<std::size_t>((base + j) * cols + k_at + d)] += d_s * c.qkv.at(row, q_at + d);
        d_qkv[static_cast<std::size_t>((base + j) * cols + v_at + d)] += p * c.d_out.at(row, q_at + d);
      }
    }
  }
};

template <class T>
void check_setup(const Setup& setup) {
  const AttentionShape& s = setup.shape;
  INFO("batch ", s.batch, " sequence ", s.sequence, " heads ", s.heads, "/", s.kv_heads, " head_dim ", s.head_dim,
       " window ", setup.window, " cap ", setup.soft_cap, " documents ", setup.documents);
  Case<T> c(setup, static_cast<std::uint64_t>(s.sequence * 31 + s.head_dim));
  c.forward();
  const Reference expected(c);
  check_close("out", c.out, expected.out, 2 * tolerance<T>);
  check_close("lse", c.lse, expected.lse, tolerance<T>);
  c.backward();
  check_close("gradients", c.d_qkv, expected.d_qkv, 4 * tolerance<T>);
}

}  // namespace

TEST_CASE_TEMPLATE("attention equals plain loops over a grid of shapes", T, Bf16, float, double) {
  for (const std::int64_t sequence : {1, 2, 7, 33, 64, 65, 97, 131})
    for (const auto& [heads, kv] : {std::pair<std::int64_t, std::int64_t>{1, 1}, {4, 2}, {8, 1}})
      for (const std::int64_t dim : {8, 16})
        check_setup<T>({{1 + sequence % 2, sequence, heads, kv, dim}, 0, 0, false});
}

TEST_CASE_TEMPLATE("attention at every kind of head_dim", T, Bf16, float, double) {
  for (const std::int64_t dim : {2, 6, 10, 16, 24, 40, 64, 80, 96, 128, 256})
    check_setup<T>({{1, 75, 2, 1, dim}, 0, 0, false});
}

TEST_CASE_TEMPLATE("attention with windows, soft-cap and documents", T, Bf16, float, double) {
  for (const std::int64_t sequence : {1, 29, 111, 150})
    for (const std::int64_t window : {0, 1, 100})
      for (const double cap : {0.0, 1.5})
        for (const bool documents : {false, true}) check_setup<T>({{2, sequence, 2, 1, 8}, window, cap, documents});
}

TEST_CASE("attention's gradients equal differences") {
  for (const Setup& setup :
       {Setup{{2, 37, 2, 1, 8}}, Setup{{1, 70, 2, 1, 12}, 20, 2.0, true}, Setup{{1, 101, 2, 2, 8}}}) {
    Case<double> c(setup);
    c.forward();
    c.backward();
    check_gradient(c.random, {{&c.qkv, c.d_qkv.values()}}, [&] {
      c.forward();
      return weighted_sum(c.d_out, c.out);
    });
  }
}

TEST_CASE_TEMPLATE("attention gives the same bits at any number of threads", T, Bf16, float, double) {
  // One kv head: two threads share it block by block, one thread does it in one pass. Four: whole heads a thread.
  for (const std::int64_t kv : {1, 4}) {
    for (const bool documents : {false, true}) {
      Case<T> c(Setup{{1, 300, 4, kv, 20}, documents ? 150 : 0, 0, documents});
      c.forward();
      check_thread_invariance(c.out, [&] { c.forward(); });
      check_thread_invariance(c.lse, [&] { c.forward(); });
      check_thread_invariance(c.d_qkv, [&] {
        c.d_qkv.fill(Buffer<T>::poison());
        c.backward();
      });
    }
  }
}

TEST_CASE_TEMPLATE("a change of a later token changes nothing before it", T, float, double) {
  const std::int64_t sequence = 150;
  for (const std::int64_t changed : {149, 96, 64, 31}) {
    Case<T> c(Setup{{1, sequence, 2, 1, 16}});
    c.forward();
    const auto out = c.out;
    const auto lse = c.lse;
    for (std::int64_t col = 0; col < c.qkv.cols(); ++col) c.qkv.at(changed, col) += T(20);
    c.forward();
    for (std::int64_t i = 0; i < changed; ++i)
      for (std::int64_t col = 0; col < c.out.cols(); ++col) REQUIRE(c.out.at(i, col) == out.at(i, col));
    for (std::int64_t i = 0; i < changed; ++i) REQUIRE(c.lse.at(1, i) == lse.at(1, i));
    for (std::int64_t i = changed; i < sequence; ++i) REQUIRE(c.lse.at(1, i) != lse.at(1, i));
  }
}

TEST_CASE_TEMPLATE("NaN is not lost in attention", T, Bf16, float, double) {
  Case<T> c(Setup{{1, 150, 2, 1, 16}});
  c.qkv.at(70, c.q_cols()) = Buffer<T>::poison();  // one element of k
  c.forward();
  c.backward();
  for (std::int64_t i = 0; i < 150; ++i) {
    REQUIRE(std::isnan(c.out.at(i, 0)) == (i >= 70));
    REQUIRE(std::isnan(c.lse.at(0, i)) == (i >= 70));
  }
  REQUIRE(std::isnan(c.d_qkv.at(149, 0)));
  REQUIRE(std::isnan(c.d_qkv.at(0, c.q_cols())));
}

TEST_CASE_TEMPLATE("large and equal scores stay finite", T, float, double) {
  Case<T> c(Setup{{1, 120, 1, 1, 8}});
  c.qkv.each([&](T& x) { x = x > 0 ? T(3000) : T(-3000); });
  c.forward();
  c.backward();
  for (const double x : c.out.values()) REQUIRE(std::abs(x) <= 3001);
  for (const double x : c.lse.values()) REQUIRE(std::isfinite(x));
  for (const double x : c.d_qkv.values()) REQUIRE(std::isfinite(x));
}

TEST_CASE("attention on no tokens does nothing") {
  for (const AttentionShape& shape : {AttentionShape{0, 5, 2, 1, 8}, AttentionShape{2, 0, 2, 1, 8}}) {
    Tensor none = Tensor::dense(nullptr, DType::fp32, {0, 2, 8}), keys = Tensor::dense(nullptr, DType::fp32, {0, 1, 8});
    Tensor stats = Tensor::dense(nullptr, DType::fp32, {2, 0});
    AttentionOptions options;
    options.shape = shape;
    CHECK_NOTHROW(kernels().attention_forward(stream, none, stats, none, keys, keys, {}, options));
    CHECK_NOTHROW(
        kernels().attention_backward(stream, none, keys, keys, none, none, keys, keys, none, stats, {}, options, {}));
  }
}

TEST_CASE("a head_dim beyond the buffers and other dtypes are refused") {
  Case<float> c(Setup{{1, 3, 1, 1, 258}});
  CHECK_THROWS_AS(c.forward(), Error);
  CHECK_THROWS_AS(c.backward(), Error);
}
