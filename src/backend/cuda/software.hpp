// SPDX-License-Identifier: Apache-2.0
/// Versions of the driver and of NVIDIA's libraries.
#pragma once

#include <vector>

#include "llmtrain/backend/software.hpp"

namespace llmtrain {

/// Driver, CUDA, cuBLASLt, cuDNN and NCCL, as loaded and as of the headers.
std::vector<SoftwareVersion> loaded_software();

}  // namespace llmtrain
