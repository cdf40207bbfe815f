// SPDX-License-Identifier: Apache-2.0
/// How much memory this process occupies, as the operating system counts it.
#pragma once

#include <cstdint>

namespace llmtrain {

/// Bytes in physical memory now (/proc/self/statm); 0 if the system does not tell.
std::int64_t resident_bytes();

/// The most bytes in physical memory so far (VmHWM of /proc/self/status); 0 if the system does not tell.
std::int64_t peak_resident_bytes();

}  // namespace llmtrain
