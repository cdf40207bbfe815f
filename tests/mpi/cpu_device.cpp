// SPDX-License-Identifier: Apache-2.0
// ranks: 1 2
/// The CPU device: zeroed memory, copies, a peak with its formula; every operation is a chance for communication to go on.
#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <thread>
#include <vector>

#include "../../src/backend/cpu/device.hpp"
#include "cpu/cpu_kernels.hpp"
#include "llmtrain/backend/communicator.hpp"
#include "llmtrain/backend/trace.hpp"
#include "llmtrain/backend/workspace.hpp"

using namespace llmtrain;

TEST_CASE("memory is aligned and zeroed, and refused where there is none") {
  const auto device = make_cpu_device(2);
  constexpr std::int64_t bytes = (3 << 20) + 5;
  for (int i = 0; i < 2; ++i) {  // the second time the memory has been used before
    auto* memory = static_cast<unsigned char*>(device->allocate(bytes, MemorySpace::device));
    REQUIRE(memory != nullptr);
    CHECK(reinterpret_cast<std::uintptr_t>(memory) % 256 == 0);
    CHECK(std::all_of(memory, memory + bytes, [](unsigned char b) { return b == 0; }));
    std::fill(memory, memory + bytes, 7);
    device->release(memory, MemorySpace::device);
  }
  CHECK(device->allocate(std::int64_t{1} << 60, MemorySpace::device) == nullptr);
}

TEST_CASE("uploads and downloads copy, and events of finished work have happened") {
  const auto device = make_cpu_device(2);
  const Stream s = device->make_stream("compute");
  std::vector<std::int32_t> host(700'000), memory(host.size()), back(host.size());
  for (std::size_t i = 0; i < host.size(); ++i) host[i] = static_cast<std::int32_t>(i);
  const Tensor tensor = Tensor::dense(memory.data(), DType::int32, {700, 1000});
  device->upload(s, tensor, host.data());
  s.wait(s.record());
  device->download(s, back.data(), tensor);
  s.synchronize();
  CHECK(back == host);
  CHECK_THROWS_AS(device->upload(s, tensor.cols_at(0, 5), host.data()), Error);
}

TEST_CASE("the peak is a product that its formula shows") {
  const auto one = make_cpu_device(1);
  std::string formula;
  const double fp32 = one->peak_flops(DType::fp32, &formula);
  CHECK(formula.find("1 core used x") != std::string::npos);
  CHECK(one->peak_flops(DType::fp64, nullptr) == fp32 / 2);
  CHECK(one->peak_flops(DType::bf16, nullptr) >= fp32);
  CHECK(one->peak_flops(DType::int32, &formula) == 0);
  CHECK(formula.find("unknown for int32") != std::string::npos);
  CHECK(make_cpu_device(1'000'000)->peak_flops(DType::fp32, nullptr) < 1'000'000 * fp32);  // cores, not threads
  CHECK(one->describe().find("1 thread on") != std::string::npos);
}

TEST_CASE("communication goes on at operation boundaries, and the observer hears of both") {
  CpuDevice device(1, &make_cpu_kernels);
  Group group{"world", 0, {}, MpiComm::world()};
  group.rank = group.comm.rank();
  for (int p = 0; p < group.comm.size(); ++p) group.world_ranks.push_back(p);
  std::vector<std::byte> staging(
      static_cast<std::size_t>(communicator_workspace(DeviceKind::cpu, group.size(), 1 << 20)));
  TraceRecorder recorder;
  device.set_observer(&recorder);
  const auto comm = device.make_communicator(
      group, Tensor::dense(staging.data(), DType::uint8, {static_cast<std::int64_t>(staging.size())}));
  const Stream s = device.make_stream("compute");

  std::vector<float> data(3'000'000, 1.0F), other(8);  // longer than the staging memory: several rounds
  Communicator::Batch batch(*comm, {});
  batch.all_reduce(Tensor::dense(data.data(), DType::fp32, {3'000'000}));
  const Event done = batch.submit();
  std::int64_t operations = 0;
  for (; operations < 1'000'000 && !device.has_happened(done); ++operations) {
    device.kernels().fill(s, Tensor::dense(other.data(), DType::fp32, {8}), 2.0);
    std::this_thread::yield();
  }
  CHECK(device.has_happened(done));
  CHECK((group.size() == 1 || operations > 0));
  s.wait(done);
  CHECK(std::all_of(data.begin(), data.end(), [&](float x) { return x == static_cast<float>(group.size()); }));
  CHECK(recorder.collectives().at({"world", "all_reduce"}).bytes == 12'000'000);
  if (operations > 0) CHECK(recorder.operations().at("fill").calls == operations);
}
