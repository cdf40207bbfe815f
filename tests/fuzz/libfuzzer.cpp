// SPDX-License-Identifier: Apache-2.0
/// The entry that libFuzzer calls; an exception that leaves it ends the process, which libFuzzer reports as a finding.
#include <cstddef>
#include <cstdint>

#include "target.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  llmtrain::fuzz::try_bytes({reinterpret_cast<const char*>(data), size});
  return 0;
}
