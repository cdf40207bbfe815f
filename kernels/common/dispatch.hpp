// SPDX-License-Identifier: Apache-2.0
/// From a tensor's dtype to the type of its elements.
#pragma once

#include "common/element.hpp"
#include "llmtrain/backend/tensor.hpp"
#include "llmtrain/base/error.hpp"

namespace llmtrain {

/// Calls f with a value of the type of statistics and masters: fp32 or fp64.
template <class F>
void dispatch_stats(const char* operation, DType dtype, F&& f) {
  switch (dtype) {
    case DType::fp32: return f(float{});
    case DType::fp64: return f(double{});
    default:
      fail(ExitCode::internal, "internal error: {} takes fp32, fp64 and, as data, bf16, not {}", operation,
           name_of(dtype));
  }
}

/// Calls f with a value of the element type of data of `dtype`.
template <class F>
void dispatch(const char* operation, DType dtype, F&& f) {
  if (dtype == DType::bf16) return f(Bf16{});
  dispatch_stats(operation, dtype, f);
}

/// Calls f with a value of the element type of fp8 data of `dtype`.
template <class F>
void dispatch_fp8(const char* operation, DType dtype, F&& f) {
  require(is_fp8(dtype), ExitCode::internal, "internal error: {} takes fp8, not {}", operation, name_of(dtype));
  if (dtype == DType::fp8_e4m3) return f(Fp8E4M3{});
  f(Fp8E5M2{});
}

/// Calls f with a value of the type of what is stored beside statistics of type S: the same, or bf16.
template <class S, class F>
void dispatch_stored(const char* operand, DType dtype, F&& f) {
  if (dtype == DType::bf16) return f(Bf16{});
  require(dtype == dtype_of<S>, ExitCode::internal, "internal error: {} are {} or bf16, not {}", operand,
          name_of(dtype_of<S>), name_of(dtype));
  f(S{});
}

}  // namespace llmtrain
