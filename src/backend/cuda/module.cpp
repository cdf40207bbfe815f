// SPDX-License-Identifier: Apache-2.0
/// Entry points of libllmtrain_cuda.so, found with dlsym: the device, and what the libraries beneath it are.
#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <cudnn.h>
#include <fmt/format.h>
#include <nccl.h>

#include <string>

#include "device.hpp"

namespace llmtrain {
namespace {

/// Number and names of the visible devices, or why there is none: "2 devices (NVIDIA H200, NVIDIA H200)".
std::string describe_devices() {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status != cudaSuccess) return fmt::format("no device ({})", cudaGetErrorString(status));
  std::string names;
  for (int device = 0; device < count; ++device) {
    cudaDeviceProp properties{};
    const bool known = cudaGetDeviceProperties(&properties, device) == cudaSuccess;
    names += fmt::format("{}{}", device == 0 ? "" : ", ", known ? properties.name : "unknown");
  }
  return fmt::format("{} device{} ({})", count, count == 1 ? "" : "s", names);
}

/// The NCCL version that was loaded, as it prints itself: 2.28.3 is 22803.
std::string describe_nccl() {
  int version = 0;
  if (ncclGetVersion(&version) != ncclSuccess) return "unknown";
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

std::string describe() {
  int runtime = 0;
  if (cudaRuntimeGetVersion(&runtime) != cudaSuccess) runtime = 0;
  const std::size_t cublas = cublasLtGetVersion();
  const std::size_t cudnn = cudnnGetVersion();
  return fmt::format("CUDA {}.{}, cuBLASLt {}.{}.{}, cuDNN {}.{}.{}, NCCL {}; {}", runtime / 1000, runtime % 1000 / 10,
                     cublas / 10000, cublas / 100 % 100, cublas % 100, cudnn / 10000, cudnn / 100 % 100, cudnn % 100,
                     describe_nccl(), describe_devices());
}

}  // namespace
}  // namespace llmtrain

/// One line: versions of the CUDA runtime, cuBLASLt, cuDNN and NCCL as loaded, and the devices seen. The text lives as
/// long as the module; not for use by several threads at once in the first call.
extern "C" const char* llmtrain_cuda_describe() {
  static const std::string line = llmtrain::describe();
  return line.c_str();
}

/// Why no GPU can be used; empty if there is one. The text lives as long as the module.
extern "C" const char* llmtrain_cuda_why_not() {
  static const std::string why = llmtrain::why_no_gpu_here();
  return why.c_str();
}

/// A CudaDevice, owned by the caller. Throws Error, as the program's own code does.
extern "C" llmtrain::Device* llmtrain_cuda_make_device(const llmtrain::CudaOptions* options) {
  return new llmtrain::CudaDevice(*options);
}
