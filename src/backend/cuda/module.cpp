// SPDX-License-Identifier: Apache-2.0
/// Entry points of libllmtrain_cuda.so, found with dlsym: the device, and what the libraries beneath it are.
#include <string>

#include "device.hpp"
#include "software.hpp"

/// One line: versions of the driver, CUDA, cuBLASLt, cuDNN and NCCL. The text lives as long as the module; not for use by
/// several threads at once in the first call.
extern "C" const char* llmtrain_cuda_software() {
  static const std::string line = llmtrain::describe_software(llmtrain::loaded_software());
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
