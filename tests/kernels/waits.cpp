// SPDX-License-Identifier: Apache-2.0
/// LLMTRAIN_CHECK_WAITS on a GPU: it sees a step that waits for the whole device and one that takes memory, and nothing in
/// a step that does neither.
#include <filesystem>
#include <fstream>

#include "kernels.hpp"
#include "llmtrain/base/timer.hpp"

using namespace llmtrain;
using namespace llmtrain::test;

TEST_CASE("the check of waits sees a wait for the device and an allocation, and no others") {
  if (device_kind() != DeviceKind::cuda) return;
  const std::filesystem::path report = std::filesystem::temp_directory_path() / "llmtrain-waits.txt";
  setenv("LLMTRAIN_CHECK_WAITS", report.c_str(), 1);
  const std::unique_ptr<Device> device = make_cuda_device({});
  unsetenv("LLMTRAIN_CHECK_WAITS");
  const Stream stream = device->make_stream("test");
  void* const memory = device->allocate(4096, MemorySpace::device);
  const Tensor x = Tensor::dense(memory, DType::fp32, {1024});
  Timers timers;
  void* taken = nullptr;
  for (const bool takes : {true, false, true, false}) {  // the first one is not looked at
    TimerRange step(timers, "step");
    TimerRange inner(timers, "forward");
    device->kernels().fill(stream, x, 2);
    if (takes) {
      device->release(taken, MemorySpace::device);
      taken = device->allocate(std::int64_t{64} << 20, MemorySpace::device);
    }
    stream.synchronize();
  }
  device->release(taken, MemorySpace::device);
  device->release(memory, MemorySpace::device);
  std::ifstream file(report);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) {
    MESSAGE(line);
    lines.push_back(line);
  }
  REQUIRE(lines.size() == 3);
  CHECK(lines[0] == "step 2: 0 device-wide waits, 0 allocations, 0 bytes taken");
  CHECK(lines[1].starts_with("step 3: 1 or more device-wide waits, 1 allocations, "));
  CHECK(lines[2] == "step 4: 0 device-wide waits, 0 allocations, 0 bytes taken");
  std::filesystem::remove(report);
}
