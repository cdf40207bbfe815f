// SPDX-License-Identifier: Apache-2.0
/// Which algorithm computes each matrix product: what a choice depends on, choices as text that ranks exchange and runs
/// keep, and the tuner of a back end that finds them.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "llmtrain/backend/kernels.hpp"

namespace llmtrain {

struct OpNote;

/// What a product does with its result before it stores it.
enum class Epilogue { none, gelu, gelu_gradient };
const char* name_of(Epilogue epilogue);

/// Of [m, k] times [k, n].
inline double product_flops(std::int64_t m, std::int64_t n, std::int64_t k) {
  return 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
}

/// Everything that the choice of an algorithm depends on. Matrices are row-major, as in Kernels::gemm.
struct GemmKey {
  GemmForm form = GemmForm::nt;
  DType data = DType::fp32, data_b = DType::fp32;  ///< of A and of B: two only where they are fp8
  DType result = DType::fp32;
  bool bias = false;  ///< added in the same pass
  Epilogue epilogue = Epilogue::none;
  std::int64_t m = 0, n = 0, k = 0, lda = 0, ldb = 0, ldd = 0;
  std::int64_t ld_gelu = 0;  ///< of GeLU's input [m, n]; 0 without
  int alignment = 16;        ///< of all operands, in bytes, at most 16

  auto operator<=>(const GemmKey&) const = default;
  double flops() const { return product_flops(m, n, k); }
};

/// `gelu`: the input of GeLU, where there is an epilogue.
GemmKey key_of(GemmForm form, const Tensor& d, const Tensor& a, const Tensor& b, bool bias,
               Epilogue epilogue = Epilogue::none, const Tensor& gelu = {});
/// The product that an operation is; none for others.
std::optional<GemmKey> product_of(const OpNote& note);

struct GemmChoice {
  std::array<std::uint64_t, 8> algorithm{};  ///< as the library behind the tuner stores it
  double seconds = 0;                        ///< that the product took; 0: not timed

  bool operator==(const GemmChoice&) const = default;
};
using GemmChoices = std::map<GemmKey, GemmChoice>;
/// By GemmTuner::identity().
using GemmChoiceBook = std::map<std::string, GemmChoices>;

/// A heading "gemm IDENTITY" before the choices that belong to it, one line a product, and a last line with the digest
/// of all before it.
std::string to_text(const GemmChoiceBook& book);
/// Throws Error(bad_input) that begins with `name` unless `text` is what to_text() made.
GemmChoiceBook parse_gemm_choices(std::string_view text, const std::string& name);

/// How a product is timed: briefly, or long enough that the device settles at the clock which its power then allows.
/// Where power limits the clock, the algorithm that is first in a burst may be 6 % behind another one that takes less.
enum class Timing { brief, settled };

/// Finds the fastest algorithms of a back end's library, by timing.
class GemmTuner {
 public:
  virtual ~GemmTuner() = default;
  /// One line, for what choices hold: processor and library with its version.
  virtual std::string identity() const = 0;
  /// False where the library cannot compute the product so, in the workspace that there is.
  virtual bool accepts(const GemmKey& key, const GemmChoice& choice) = 0;
  /// Waits for the timing. `memory` (uint8, aligned to 256) is overwritten; where it does not hold the
  /// largest operand, the library's first proposal is the choice.
  virtual GemmChoice fastest(Stream s, const GemmKey& key, Tensor memory, Timing timing) = 0;
  /// From here on products are computed so; others by the library's own first proposal.
  virtual void use(const GemmChoices& choices) = 0;
};

}  // namespace llmtrain
