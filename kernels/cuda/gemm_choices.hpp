// SPDX-License-Identifier: Apache-2.0
/// GemmChoices: algorithms that timing has found best, kept in a file from run to run.
#pragma once

#include <cublasLt.h>

#include <compare>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include "llmtrain/backend/kernels.hpp"

namespace llmtrain {

/// What a product does with its result before it stores it.
enum class Epilogue { none, gelu, gelu_gradient };

/// Everything that cuBLASLt's choice of an algorithm depends on.
struct GemmKey {
  GemmForm form;
  DType data, result;
  bool bias;  ///< added in the same pass
  Epilogue epilogue;
  std::int64_t m, n, k, lda, ldb, ldd, ld_gelu;
  int alignment;  ///< of all operands, in bytes, at most 16

  auto operator<=>(const GemmKey&) const = default;
};

/// One line a shape: the key, then the algorithm's bytes (which NVIDIA allows to store for one version of the library).
/// The file's name holds the GPU and the version. A file that cannot be read or written only costs the time to choose
/// again.
class GemmChoices {
 public:
  /// `gpu`: name of the device. In $XDG_CACHE_HOME, or $HOME/.cache, /llmtrain.
  explicit GemmChoices(const std::string& gpu);

  std::optional<cublasLtMatmulAlgo_t> find(const GemmKey& key) const;
  /// Remembers, and writes the file anew.
  void add(const GemmKey& key, const cublasLtMatmulAlgo_t& algorithm);

 private:
  void save() const;

  std::filesystem::path path_;  ///< empty: nowhere to write
  std::map<GemmKey, cublasLtMatmulAlgo_t> choices_;
};

}  // namespace llmtrain
