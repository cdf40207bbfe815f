// SPDX-License-Identifier: Apache-2.0
/// Views of views, with their bounds checked.
#include "llmtrain/backend/tensor.hpp"

namespace llmtrain {

Tensor Tensor::dense(void* data, DType dtype, std::span<const std::int64_t> shape) {
  LLMTRAIN_CHECK(!shape.empty() && shape.size() <= 4);
  Tensor t;
  t.data = data;
  t.dtype = dtype;
  t.rank = static_cast<int>(shape.size());
  for (std::size_t i = 0; i < shape.size(); ++i) t.extent[i] = shape[i];
  t.leading = t.cols();
  return t;
}

std::int64_t Tensor::cols() const {
  std::int64_t product = 1;
  for (int i = 1; i < rank; ++i) product *= extent[static_cast<std::size_t>(i)];
  return product;
}

Tensor Tensor::rows_at(std::int64_t begin, std::int64_t count) const {
  LLMTRAIN_CHECK(begin >= 0 && count >= 0 && begin + count <= rows());
  Tensor t = *this;
  t.extent[0] = count;
  t.data = static_cast<char*>(data) + begin * leading * size_of(dtype);
  return t;
}

Tensor Tensor::cols_at(std::int64_t begin, std::int64_t count) const {
  LLMTRAIN_CHECK(begin >= 0 && count >= 0 && begin + count <= cols());
  Tensor t = *this;
  t.rank = 2;
  t.extent = {rows(), count, 0, 0};
  t.data = static_cast<char*>(data) + begin * size_of(dtype);
  return t;
}

Tensor Tensor::with_inner(std::initializer_list<std::int64_t> inner) const {
  Tensor t = *this;
  t.rank = 1;
  for (const std::int64_t n : inner) {
    LLMTRAIN_CHECK(t.rank < 4);
    t.extent[static_cast<std::size_t>(t.rank++)] = n;
  }
  LLMTRAIN_CHECK(t.cols() == cols());
  return t;
}

Tensor Tensor::reshaped(std::initializer_list<std::int64_t> shape) const {
  LLMTRAIN_CHECK(is_dense());
  Tensor t = dense(data, dtype, shape);
  t.scale = scale;
  LLMTRAIN_CHECK(t.numel() == numel());
  return t;
}

Tensor Tensor::flat(std::int64_t begin, std::int64_t count) const {
  LLMTRAIN_CHECK(is_dense() && begin >= 0 && count >= 0 && begin + count <= numel());
  Tensor t = dense(static_cast<char*>(data) + begin * size_of(dtype), dtype, {count});
  t.scale = scale;
  return t;
}

Tensor Tensor::scale_tensor() const {
  return scale != nullptr ? dense(const_cast<float*>(scale), DType::fp32, {1}) : Tensor{};
}

bool Tensor::same_shape(const Tensor& other) const {
  if (rank != other.rank) return false;
  for (int i = 0; i < rank; ++i) {
    if (extent[static_cast<std::size_t>(i)] != other.extent[static_cast<std::size_t>(i)]) return false;
  }
  return true;
}

std::string Tensor::describe() const {
  std::string text = fmt::format("{} [", name_of(dtype));
  for (int i = 0; i < rank; ++i) text += fmt::format("{}{}", i ? ", " : "", extent[static_cast<std::size_t>(i)]);
  text += "]";
  if (!is_dense()) text += fmt::format(" ld {}", leading);
  return text;
}

}  // namespace llmtrain
