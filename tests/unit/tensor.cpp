// SPDX-License-Identifier: Apache-2.0
/// Views of packed storage: q inside qkv, slices of rows and columns, and refused shapes.
#include "llmtrain/backend/tensor.hpp"

#include <doctest/doctest.h>

#include <vector>

using namespace llmtrain;

TEST_CASE("a column slice of a packed tensor keeps its leading dimension") {
  std::vector<float> storage(5 * 24);
  const Tensor packed = Tensor::dense(storage.data(), DType::fp32, {5, 24});
  const Tensor k = packed.cols_at(16, 4).with_inner({2, 2});
  CHECK(k.rank == 3);
  CHECK(k.leading == 24);
  CHECK(k.cols() == 4);
  CHECK(k.rows_at(3, 2).ptr<float>() == storage.data() + 3 * 24 + 16);
  CHECK_FALSE(k.is_dense());
  CHECK_THROWS_AS(k.flat(), Error);
  CHECK_THROWS_AS(packed.cols_at(20, 5), Error);
  CHECK_THROWS_AS(packed.ptr<double>(), Error);
  CHECK(packed.reshaped({10, 12}).rows_at(1, 1).ptr<float>() == storage.data() + 12);
}
