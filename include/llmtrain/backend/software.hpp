// SPDX-License-Identifier: Apache-2.0
/// Versions of what lies beneath a device, as a line for people.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace llmtrain {

/// A driver or library: the version that runs, and the one whose headers the program was built with (empty: none).
struct SoftwareVersion {
  std::string name, running, built;
};

/// "driver 580.95.05, CUDA 13.0, cuDNN 9.19.0; built with cuDNN 9.14.0": the second part names those that differ.
std::string describe_software(std::span<const SoftwareVersion> versions);

/// A version that a library gives as one number: of_digits(91900) = "9.19.0".
std::string of_digits(std::int64_t version);

/// The number in the kernel module's own words, /proc/driver/nvidia/version; "unknown" where there is none.
std::string driver_version(const std::string& text);

/// The line for the driver, CUDA, cuBLASLt, cuDNN and NCCL as loaded; empty where there is no CUDA back end.
std::string cuda_software();

}  // namespace llmtrain
