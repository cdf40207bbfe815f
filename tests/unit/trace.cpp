// SPDX-License-Identifier: Apache-2.0
/// The trace back end touches no memory and tells its observer everything.
#include "llmtrain/backend/trace.hpp"

#include <doctest/doctest.h>

#include <set>
#include <vector>

#include "llmtrain/backend/communicator.hpp"
#include "llmtrain/backend/kernels.hpp"

using namespace llmtrain;

TEST_CASE("trace memory has distinct, aligned addresses outside of user space") {
  const auto device = make_trace_device(DeviceKind::cuda);
  CHECK_FALSE(device->executes());
  CHECK(device->kind() == DeviceKind::cuda);
  CHECK(device->peak_flops(DType::fp32, nullptr) == 0);
  std::uintptr_t end = std::uintptr_t{1} << 47;
  for (const std::int64_t bytes : {0LL, 1LL, 255LL, 256LL, 1LL << 40, 3LL}) {
    const auto address = reinterpret_cast<std::uintptr_t>(device->allocate(bytes, MemorySpace::device));
    CHECK(address % 256 == 0);
    CHECK(address > end);
    end = address + static_cast<std::uintptr_t>(bytes);
  }
  const Stream s = device->make_stream("compute"), t = device->make_stream("copy");
  CHECK(s.id != t.id);
  CHECK(s.record().id != t.record().id);
}

TEST_CASE("collectives are totalled by group and kind, without MPI and without touching tensors") {
  const auto device = make_trace_device(DeviceKind::cpu);
  TraceRecorder recorder(true);
  device->set_observer(&recorder);
  const Group tp{"tp", 1, {4, 5}, MpiComm()};
  const Group shard{"shard", 3, {1, 3, 5, 7}, MpiComm()};
  const auto over_tp = device->make_communicator(tp, Tensor{});
  const auto over_shard = device->make_communicator(shard, Tensor{});
  const Tensor whole = Tensor::dense(device->allocate(4000, MemorySpace::device), DType::fp32, {1000});
  for (int i = 0; i < 3; ++i) {
    Communicator::Batch batch(*over_shard, {});
    batch.reduce_scatter(whole.flat(0, 250), whole);
    batch.all_gather(whole, whole.flat(750, 250));
    CHECK(batch.submit().device == device.get());
  }
  Communicator::Batch batch(*over_tp, {});
  batch.send(whole.flat(0, 10), 0);
  batch.submit();
  const auto& totals = recorder.collectives();
  CHECK(totals.size() == 3);
  CHECK(totals.at({"shard", "reduce_scatter"}).calls == 3);
  CHECK(totals.at({"shard", "reduce_scatter"}).bytes == 12000);
  CHECK(totals.at({"shard", "all_gather"}).bytes == 12000);
  CHECK(totals.at({"tp", "send"}).bytes == 40);
  CHECK(recorder.batches() == std::map<std::string, std::int64_t>{{"shard", 3}, {"tp", 1}});
  CHECK(recorder.notes().size() == 7);
  CHECK(recorder.notes()[1].name == "all_gather");
  CHECK(recorder.notes()[6].writes.empty());
  CHECK(recorder.table().find("shard all_gather") != std::string::npos);
  device->set_observer(nullptr);
  Communicator::Batch silent(*over_tp, {});
  silent.all_reduce(whole);
  silent.submit();
  CHECK(recorder.notes().size() == 7);
}

TEST_CASE("operations are totalled by name") {
  const auto device = make_trace_device(DeviceKind::cpu);
  TraceRecorder recorder;
  device->set_observer(&recorder);
  const Stream s = device->make_stream("compute");
  const auto tensor = [&](std::initializer_list<std::int64_t> shape) {
    return Tensor::dense(device->allocate(1 << 20, MemorySpace::device), DType::fp32, shape);
  };
  const Tensor a = tensor({6, 4}), b = tensor({8, 4}), d = tensor({6, 8});
  device->kernels().gemm(s, GemmForm::nt, d, a, b);
  device->kernels().gemm(s, GemmForm::nt, d, a, b, Write::accumulate);
  device->kernels().fill(s, d, 1.0);
  const auto& totals = recorder.operations();
  CHECK(totals.at("gemm").calls == 2);
  CHECK(totals.at("gemm").bytes_written == 2 * 4 * 48);
  CHECK(totals.at("gemm").bytes_read == 4 * (24 + 32) * 2 + 4 * 48);
  CHECK(totals.at("gemm").flops == 2 * 2.0 * 6 * 8 * 4);
  CHECK(recorder.flops() == totals.at("gemm").flops);
  CHECK(totals.at("fill").bytes_written == 4 * 48);
  CHECK(recorder.notes().empty());
  CHECK(recorder.table().find("gemm") != std::string::npos);
  recorder.clear();
  CHECK(recorder.operations().empty());
}
