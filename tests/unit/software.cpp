// SPDX-License-Identifier: Apache-2.0
/// The line of versions beneath a device.
#include "llmtrain/backend/software.hpp"

#include <doctest/doctest.h>

#include <vector>

using namespace llmtrain;

TEST_CASE("versions that run, and those of the build where they differ") {
  std::vector<SoftwareVersion> versions{
      {"driver", "580.95.05", ""}, {"CUDA", "13.0", "13.0"}, {"NCCL", "2.28.9", "2.28.9"}};
  CHECK(describe_software(versions) == "driver 580.95.05, CUDA 13.0, NCCL 2.28.9");
  versions[1].built = "12.8";
  CHECK(describe_software(versions) == "driver 580.95.05, CUDA 13.0, NCCL 2.28.9; built with CUDA 12.8");
  versions[2].running = "2.27.3";
  CHECK(describe_software(versions) == "driver 580.95.05, CUDA 13.0, NCCL 2.27.3; built with CUDA 12.8, NCCL 2.28.9");
  CHECK(describe_software({}).empty());
}

TEST_CASE("versions out of one number, and out of the driver's words") {
  CHECK(of_digits(91900) == "9.19.0");
  CHECK(of_digits(130100) == "13.1.0");
  CHECK(of_digits(22809) == "2.28.9");
  CHECK(driver_version("NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.183.01  Sun May 12 19:39:15 UTC 2024\n"
                       "GCC version:  gcc version 11.4.0 (Ubuntu)\n") == "535.183.01");
  CHECK(driver_version("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95  Release Build  (dvs)\n") ==
        "580.95");
  CHECK(driver_version("GCC version:  gcc version 11.4.0\n") == "unknown");
  CHECK(driver_version("") == "unknown");
}
