// SPDX-License-Identifier: Apache-2.0
/// Checks of an operation's tensors whose message names the operation, the rule and every tensor involved.
#pragma once

#include <array>
#include <initializer_list>
#include <string>

#include "llmtrain/backend/kernels.hpp"

namespace llmtrain {

/// The rules of one operation; a broken one throws Error(internal). The tensors must outlive the check.
class OperationCheck {
 public:
  struct Argument {
    const char* name = nullptr;
    const Tensor* tensor = nullptr;
    Argument() = default;
    Argument(const char* n, const Tensor& t) : name(n), tensor(&t) {}
  };

  OperationCheck(const char* operation, std::initializer_list<Argument> arguments) : operation_(operation) {
    LLMTRAIN_CHECK(arguments.size() <= arguments_.size());
    for (const Argument& a : arguments) {
      arguments_[count_++] = a;
    }
    for (std::size_t i = 0; i < count_; ++i) {
      const Tensor& t = *arguments_[i].tensor;
      that(!t || t.rows() <= 1 || t.leading >= t.cols(), "rows must not overlap");
    }
  }

  void that(bool holds, const char* rule) const {
    if (holds) [[likely]]
      return;
    std::string list;
    for (std::size_t i = 0; i < count_; ++i) {
      const Tensor& t = *arguments_[i].tensor;
      list += fmt::format("{}{} {}", i > 0 ? ", " : "", arguments_[i].name, t ? t.describe() : "absent");
    }
    fail(ExitCode::internal, "internal error: {}: {}, but got {}; please report this with the deck and the command",
         operation_, rule, list);
  }

 private:
  const char* operation_;
  std::array<Argument, 14> arguments_;
  std::size_t count_ = 0;
};

inline bool is_floating(const Tensor& t) {
  return t.dtype == DType::fp64 || t.dtype == DType::fp32 || t.dtype == DType::bf16 || t.dtype == DType::fp16;
}
/// The dtype of sums and statistics of data of this dtype.
inline DType stats_dtype(DType data) { return data == DType::fp64 ? DType::fp64 : DType::fp32; }

inline bool same_matrix(const Tensor& a, const Tensor& b) { return a.rows() == b.rows() && a.cols() == b.cols(); }
inline bool is_vector(const Tensor& t, std::int64_t size) { return t.is_dense() && t.numel() == size; }
inline bool is_matrix(const Tensor& t, std::int64_t rows, std::int64_t cols) {
  return t.rank > 0 && t.rows() == rows && t.cols() == cols;
}
inline bool is_workspace(const Tensor& t) { return !t || (t.dtype == DType::uint8 && t.is_dense()); }
/// d may hold sums of elements of this dtype: it has the dtype itself or a wider one.
inline bool holds_sums_of(const Tensor& d, DType data) { return d.dtype == data || d.dtype == stats_dtype(data); }
/// What an accumulating operation reads of its destination.
inline Tensor read_if(Write write, const Tensor& destination) {
  return write == Write::accumulate ? destination : Tensor{};
}
inline bool has_fp8_extents(const Tensor& t) { return t.rows() % fp8_multiple == 0 && t.cols() % fp8_multiple == 0; }
inline bool has_dtype(const Tensor& t, DType dtype) { return t.rank > 0 && t.dtype == dtype; }

}  // namespace llmtrain
