// SPDX-License-Identifier: Apache-2.0
/// The line of peak and measured rate, and the measurement on the CPU.
#include "llmtrain/driver/device_speed.hpp"

#include <doctest/doctest.h>

using namespace llmtrain;

TEST_CASE("the measured rate stands beside the peak where there is one") {
  const std::string formula = "989.4 TFLOP/s, dense bf16 of a sheet";
  CHECK(speed_line(989.4e12, formula, {}) == formula);
  CHECK(speed_line(989.4e12, formula, {700e12, 700e12}) == formula + "; measured 700.0 TFLOP/s, 70.7 % of it");
  CHECK(speed_line(1e15, formula, {690e12, 700e12}) ==
        formula + "; measured 690.0 TFLOP/s to 700.0 TFLOP/s, 69.0 % of it");
  CHECK(speed_line(0, "unknown for bf16", {690e12, 690e12}) == "unknown for bf16; measured 690.0 TFLOP/s");
}

TEST_CASE("products are measured, each go after the call that brings the ranks together") {
  const auto device = make_cpu_device(1);
  int calls = 0;
  CHECK(measure_products(*device, DType::fp32, 2, [&] { ++calls; }) > 1e8);
  CHECK(calls == 3);
}
