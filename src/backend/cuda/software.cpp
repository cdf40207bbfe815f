// SPDX-License-Identifier: Apache-2.0
/// What the driver and each library say of themselves, and what their headers say.
#include "software.hpp"

#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <cudnn.h>
#include <fmt/format.h>
#include <nccl.h>

#include <fstream>
#include <iterator>

namespace llmtrain {

namespace {

/// CUDA's way: 13000 is 13.0.
std::string of_cuda(int version) { return fmt::format("{}.{}", version / 1000, version % 1000 / 10); }

std::string driver() {
  int newest = 0;
  if (cudaDriverGetVersion(&newest) != cudaSuccess || newest == 0) return "none";
  std::ifstream file("/proc/driver/nvidia/version");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  return fmt::format("{} (for CUDA up to {})", driver_version(text), of_cuda(newest));
}

}  // namespace

std::vector<SoftwareVersion> loaded_software() {
  int runtime = 0, nccl = 0;
  if (cudaRuntimeGetVersion(&runtime) != cudaSuccess) runtime = 0;
  if (ncclGetVersion(&nccl) != ncclSuccess) nccl = 0;
  return {{"driver", driver(), ""},
          {"CUDA", of_cuda(runtime), of_cuda(CUDART_VERSION)},
          {"cuBLASLt", of_digits(static_cast<std::int64_t>(cublasLtGetVersion())), of_digits(CUBLAS_VERSION)},
          {"cuDNN", of_digits(static_cast<std::int64_t>(cudnnGetVersion())), of_digits(CUDNN_VERSION)},
          {"NCCL", of_digits(nccl), of_digits(NCCL_VERSION_CODE)}};
}

}  // namespace llmtrain
