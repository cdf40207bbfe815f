// SPDX-License-Identifier: Apache-2.0
/// The CPU back end's factory: joins the device with its kernels.
#include "cpu/cpu_kernels.hpp"
#include "device.hpp"

namespace llmtrain {

std::unique_ptr<Device> make_cpu_device(int threads) { return std::make_unique<CpuDevice>(threads, &make_cpu_kernels); }

}  // namespace llmtrain
