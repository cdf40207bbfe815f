// SPDX-License-Identifier: Apache-2.0
/// Entry points of libllmtrain_cuda.so, found with dlsym: the device, and what the libraries beneath it are.
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <string>

#include "device.hpp"
#include "software.hpp"

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

std::string describe() { return fmt::format("{}; {}", describe_software(cuda_software()), describe_devices()); }

}  // namespace
}  // namespace llmtrain

/// One line: versions of the driver, CUDA, cuBLASLt, cuDNN and NCCL as loaded, and the devices seen. The text lives as
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
