// SPDX-License-Identifier: Apache-2.0
/// embedding forward and backward: ids of other ranks, padding rows, repeated ids, both ways of writing.
#include <numeric>

#include "kernels.hpp"

using namespace llmtrain;
using namespace llmtrain::test;

namespace {

struct Case {
  std::int64_t tokens, cols, all_rows;  // ids are in [0, all_rows)
  VocabRange vocab;
  std::int64_t table_rows;
};
// Whole table; middle range with padding rows; a rank without a true row; wide rows with few ids (long runs).
const std::vector<Case> cases = {
    {37, 5, 11, {0, 11}, 11}, {300, 70, 50, {20, 13}, 16}, {9, 8, 10, {10, 0}, 4}, {700, 130, 3, {0, 3}, 8}};

Buffer<std::int32_t> sorting_order(const Buffer<std::int32_t>& ids) {
  Buffer<std::int32_t> order({ids.numel()});
  std::vector<std::int32_t> p(static_cast<std::size_t>(ids.numel()));
  std::iota(p.begin(), p.end(), 0);
  std::stable_sort(p.begin(), p.end(), [&](int a, int b) { return ids.at(a) < ids.at(b); });
  for (std::int64_t i = 0; i < ids.numel(); ++i) order.at(i) = p[static_cast<std::size_t>(i)];
  return order;
}

}  // namespace

TEST_CASE_TEMPLATE("embedding_forward takes rows of this rank and zeros elsewhere", T, Bf16, float, double) {
  Random random(1);
  for (const Case& c : cases) {
    auto ids = Buffer<std::int32_t>::integers(random, {c.tokens}, 0, c.all_rows);
    auto table = Buffer<T>::random(random, {c.table_rows, c.cols}, c.cols + 3);
    Buffer<T> out({c.tokens, c.cols}, c.cols + 1);
    kernels().embedding_forward(stream, out.tensor(), ids.tensor(), table.tensor(), c.vocab);
    std::vector<double> expected;
    for (std::int64_t t = 0; t < c.tokens; ++t) {
      const std::int64_t row = ids.at(t) - c.vocab.first;
      for (std::int64_t k = 0; k < c.cols; ++k) {
        expected.push_back(row >= 0 && row < c.vocab.valid ? static_cast<double>(table.at(row, k)) : 0);
      }
    }
    check_close("embedding", out, expected, 0);
    auto sum = Buffer<T>::random(random, {c.tokens, c.cols}, c.cols + 1), added = sum;
    for (std::int64_t i = 0; i < added.numel(); ++i) added.flat(i) = static_cast<T>(added.flat(i) + out.flat(i));
    kernels().embedding_forward(stream, sum.tensor(), ids.tensor(), table.tensor(), c.vocab, Write::accumulate);
    CHECK(sum.same_bits(added));
  }
}

TEST_CASE_TEMPLATE("embedding_backward sums rows of equal ids in order of position", T, Bf16, float, double) {
  Random random(2);
  for (const Case& c : cases) {
    for (const Write write : {Write::overwrite, Write::accumulate}) {
      auto ids = Buffer<std::int32_t>::integers(random, {c.tokens}, 0, c.all_rows);
      auto order = sorting_order(ids);
      auto d_out = Buffer<T>::random(random, {c.tokens, c.cols}, c.cols + 2);
      using Sums = Buffer<StatsOf<T>>;
      const auto before = write == Write::overwrite ? Sums({c.table_rows, c.cols}, c.cols + 3)
                                                    : Sums::random(random, {c.table_rows, c.cols}, c.cols + 3);
      auto d_table = before, expected = before;
      if (write == Write::overwrite) expected.fill(0);
      for (std::int64_t t = 0; t < c.tokens; ++t) {
        const std::int64_t row = ids.at(t) - c.vocab.first;
        if (row < 0 || row >= c.vocab.valid) continue;
        for (std::int64_t k = 0; k < c.cols; ++k) expected.at(row, k) += d_out.at(t, k);
      }
      check_thread_invariance(d_table, [&] {
        d_table = before;
        kernels().embedding_backward(stream, d_table.tensor(), d_out.tensor(), ids.tensor(), order.tensor(), c.vocab,
                                     write);
      });
      CHECK(d_table.same_bits(expected));  // the same order of additions: the same bits
      check_thread_invariance(d_table, [&] {
        d_table = before;
        kernels().embedding_backward(stream, d_table.tensor(), d_out.tensor(), ids.tensor(), {}, c.vocab, write);
      });
      CHECK(d_table.same_bits(expected));  // without the permutation too
    }
  }
}

TEST_CASE("embedding_backward is the gradient") {
  Random random(3);
  const VocabRange vocab{2, 5};
  auto ids = Buffer<std::int32_t>::integers(random, {20}, 0, 9), order = sorting_order(ids);
  auto table = Buffer<double>::random(random, {6, 3}), d_out = Buffer<double>::random(random, {20, 3});
  Buffer<double> out({20, 3}), d_table({6, 3});
  kernels().embedding_backward(stream, d_table.tensor(), d_out.tensor(), ids.tensor(), order.tensor(), vocab,
                               Write::overwrite);
  const auto loss = [&] {
    kernels().embedding_forward(stream, out.tensor(), ids.tensor(), table.tensor(), vocab);
    return weighted_sum(d_out, out);
  };
  check_gradient(random, {{&table, d_table.values()}}, loss, Degree::at_most_2);
}
