// SPDX-License-Identifier: Apache-2.0
/// Element types of tensors, their sizes and names.
#pragma once

#include <cstdint>
#include <string_view>

namespace llmtrain {

/// Element type of a tensor; int32 and int64 hold token ids, positions and permutations.
enum class DType : std::uint8_t { fp64, fp32, bf16, fp16, fp8_e4m3, fp8_e5m2, int64, int32, uint8 };

/// Bytes of one element.
constexpr std::int64_t size_of(DType type) {
  switch (type) {
    case DType::fp64:
    case DType::int64: return 8;
    case DType::fp32:
    case DType::int32: return 4;
    case DType::bf16:
    case DType::fp16: return 2;
    case DType::fp8_e4m3:
    case DType::fp8_e5m2:
    case DType::uint8: return 1;
  }
  return 0;
}

constexpr bool is_fp8(DType type) { return type == DType::fp8_e4m3 || type == DType::fp8_e5m2; }

/// Name as decks, logs and checkpoints print it.
constexpr std::string_view name_of(DType type) {
  switch (type) {
    case DType::fp64: return "fp64";
    case DType::fp32: return "fp32";
    case DType::bf16: return "bf16";
    case DType::fp16: return "fp16";
    case DType::fp8_e4m3: return "fp8_e4m3";
    case DType::fp8_e5m2: return "fp8_e5m2";
    case DType::int64: return "int64";
    case DType::int32: return "int32";
    case DType::uint8: return "uint8";
  }
  return "?";
}

/// The DType of a C++ element type (fp32 for float, ...).
template <class T>
inline constexpr DType dtype_of = DType::uint8;
template <>
inline constexpr DType dtype_of<double> = DType::fp64;
template <>
inline constexpr DType dtype_of<float> = DType::fp32;
template <>
inline constexpr DType dtype_of<std::int64_t> = DType::int64;
template <>
inline constexpr DType dtype_of<std::int32_t> = DType::int32;

}  // namespace llmtrain
