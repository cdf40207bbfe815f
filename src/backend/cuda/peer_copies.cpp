// SPDX-License-Identifier: Apache-2.0
/// Memory of other processes, counters in it, and the order of copies.
#include "peer_copies.hpp"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "llmtrain/base/error.hpp"
#include "llmtrain/base/host.hpp"

namespace llmtrain {

namespace {

using Op = Communicator::Op;
using OpKind = Communicator::OpKind;

template <class Call>
Call* driver_call(const char* name) {
  void* call = nullptr;
  cudaDriverEntryPointQueryResult found{};
#if CUDART_VERSION >= 12050
  check_cuda(cudaGetDriverEntryPointByVersion(name, &call, 12000, cudaEnableDefault, &found), name);
#else
  check_cuda(cudaGetDriverEntryPoint(name, &call, cudaEnableDefault, &found), name);
#endif
  require(found == cudaDriverEntryPointSuccess, ExitCode::configuration,
          "the CUDA driver has no {}; install a driver for CUDA 12 or newer, or set LLMTRAIN_PEER_COPIES=0", name);
  return reinterpret_cast<Call*>(call);
}

using MemoryOperation = CUresult(CUstream, CUdeviceptr, cuuint32_t, unsigned);

void check_driver(CUresult status, const char* call) {
  require(status == CUDA_SUCCESS, ExitCode::internal,
          "CUDA driver: {}: error {}; LLMTRAIN_PEER_COPIES=0 in the environment leaves such transfers to NCCL", call,
          static_cast<int>(status));
}

bool succeeded(cudaError_t status) {
  if (status == cudaSuccess) return true;
  cudaGetLastError();  // this error is answered here
  return false;
}

/// By a copy engine.
void copy_bytes(cudaStream_t stream, const Op& op, void* to, const void* from, std::int64_t bytes) {
  check_cuda(cudaMemcpyAsync(to, from, static_cast<std::size_t>(bytes), cudaMemcpyDeviceToDevice, stream),
             name_of(op.kind));
}

/// Whether the device is that GPU, or sees it and reaches its memory.
bool reaches(const CudaDevice& device, const std::string& uuid) {
  int count = 0;
  check_cuda(cudaGetDeviceCount(&count), "cudaGetDeviceCount");
  for (int other = 0; other < count; ++other) {
    cudaDeviceProp properties{};
    check_cuda(cudaGetDeviceProperties(&properties, other), "cudaGetDeviceProperties");
    if (std::memcmp(properties.uuid.bytes, uuid.data(), uuid.size()) != 0) continue;
    int access = 0;
    return other == device.number() ||
           (succeeded(cudaDeviceCanAccessPeer(&access, device.number(), other)) && access != 0);
  }
  return false;
}

}  // namespace

std::unique_ptr<PeerCopies> PeerCopies::connect(CudaDevice& device, const Group& group) {
  const MpiComm& comm = group.comm;
  const auto all = [&](bool here) { return comm.all_reduce(std::int64_t{here}, MpiOp::min) != 0; };
  if (!all(is_switched_on("LLMTRAIN_PEER_COPIES", true))) return nullptr;
  if (!all(comm.split_by_node().size() == group.size())) return nullptr;
  const cudaUUID_t& own = device.uuid();
  const std::vector<std::string> gpus = comm.all_gather(std::string(own.bytes, sizeof own.bytes));
  if (!all(std::ranges::all_of(gpus, [&](const std::string& uuid) { return reaches(device, uuid); }))) return nullptr;
  std::unique_ptr<PeerCopies> copies(new PeerCopies(device, group));
  if (all(copies->open_counters())) return copies;
  copies->close();
  return nullptr;
}

PeerCopies::PeerCopies(CudaDevice& device, const Group& group) : device_(device), group_(group) {
  int flushes = 0;  // where a GPU may put off what others write
  check_cuda(cudaDeviceGetAttribute(&flushes, cudaDevAttrCanFlushRemoteWrites, device.number()),
             "cudaDevAttrCanFlushRemoteWrites");
  if (flushes != 0) flush_ = CU_STREAM_WAIT_VALUE_FLUSH;
}

bool PeerCopies::open_counters() {
  const auto size = static_cast<std::size_t>(group_.size());
  peers_.resize(size);
  const std::size_t bytes = 2 * size * sizeof(std::uint32_t);
  check_cuda(cudaMalloc(&counters_, exportable_bytes(bytes)), "cudaMalloc");
  check_cuda(cudaMemset(counters_, 0, bytes), "cudaMemset");
  check_cuda(cudaDeviceSynchronize(), "cudaMemset");
  cudaIpcMemHandle_t own{};
  bool opened = succeeded(cudaIpcGetMemHandle(&own, counters_));
  std::vector<cudaIpcMemHandle_t> handles(size);
  group_.comm.all_gather(std::as_writable_bytes(std::span(handles)), std::as_bytes(std::span(&own, 1)));
  for (int rank = 0; rank < group_.size() && opened; ++rank) {
    if (rank == group_.rank) continue;
    const cudaIpcMemHandle_t& theirs = handles[static_cast<std::size_t>(rank)];
    opened = succeeded(cudaIpcOpenMemHandle(&peer_at(rank).counters, theirs, cudaIpcMemLazyEnablePeerAccess));
  }
  return opened;
}

void PeerCopies::open_channel(const Tensor& staging) {
  LLMTRAIN_CHECK(group_.size() == 2 && (group_.rank == 0 || staging));
  std::vector<Place> places(2);
  const Place own = staging ? place_of(staging) : Place{};
  group_.comm.all_gather(std::as_writable_bytes(std::span(places)), std::as_bytes(std::span(&own, 1)));
  staging_ = group_.rank == 1 ? staging.data : map(1, places[1]);
}

void PeerCopies::close() {
  if (std::exchange(closed_, true)) return;
  for (const auto& [place, memory] : mapped_) cudaIpcCloseMemHandle(memory);
  for (const Peer& peer : peers_) {
    if (peer.counters != nullptr) cudaIpcCloseMemHandle(peer.counters);
  }
  group_.comm.barrier();  // memory is freed when nobody sees it any more
  cudaFree(counters_);
}

bool PeerCopies::takes(std::span<const Op> ops) {
  CopiedBatch batch;
  for (const Op& op : ops) batch.add(name_of(op.kind), op.source.bytes());
  return batch.answer();
}

PeerCopies::Place PeerCopies::place_of(const Tensor& destination) {
  const CudaDevice::Allocation memory = device_.allocation_of(destination.data);
  const auto [at, is_new] = exported_.try_emplace(memory.number);
  if (is_new) check_cuda(cudaIpcGetMemHandle(&at->second, memory.base), "cudaIpcGetMemHandle");
  return {at->second, memory.number, static_cast<char*>(destination.data) - memory.base};
}

char* PeerCopies::map(int rank, const Place& place) {
  const auto [at, is_new] = mapped_.try_emplace({rank, place.allocation});
  if (is_new) {
    check_cuda(cudaIpcOpenMemHandle(&at->second, place.memory, cudaIpcMemLazyEnablePeerAccess), "cudaIpcOpenMemHandle");
  }
  return static_cast<char*>(at->second) + place.offset;
}

CUdeviceptr PeerCopies::address(void* counters, Counter counter, int rank) const {
  const int row = counter == Counter::ready ? 0 : 1;
  return reinterpret_cast<CUdeviceptr>(static_cast<std::uint32_t*>(counters) + row * group_.size() + rank);
}

void PeerCopies::signal(cudaStream_t stream, int rank, Counter counter, std::uint32_t value) {
  static MemoryOperation* const write = driver_call<MemoryOperation>("cuStreamWriteValue32");
  check_driver(
      write(stream, address(peer_at(rank).counters, counter, group_.rank), value, CU_STREAM_WRITE_VALUE_DEFAULT),
      "cuStreamWriteValue32");
}

void PeerCopies::await(cudaStream_t stream, int rank, Counter counter, std::uint32_t value) {
  static MemoryOperation* const wait = driver_call<MemoryOperation>("cuStreamWaitValue32");
  const unsigned flags = CU_STREAM_WAIT_VALUE_GEQ | (counter == Counter::arrived ? flush_ : 0U);
  check_driver(wait(stream, address(counters_, counter, rank), value, flags), "cuStreamWaitValue32");
}

bool PeerCopies::goes_to(const Op& op, int rank) const {
  if (op.kind == OpKind::copy) return rank == group_.rank;
  return op.kind == OpKind::all_gather || group_.at_distance(op.peer) == rank;
}

void PeerCopies::copy(cudaStream_t stream, int rank, std::span<const Op> ops, std::span<const Place> places) {
  for (std::size_t i = 0; i < ops.size(); ++i) {
    const Op& op = ops[i];
    if (!goes_to(op, rank)) continue;
    const std::int64_t part = op.kind == OpKind::all_gather ? group_.rank * op.source.bytes() : 0;
    char* const to = rank == group_.rank ? static_cast<char*>(op.destination.data) : map(rank, places[i]);
    if (to + part == op.source.data) continue;
    copy_bytes(stream, op, to + part, op.source.data, op.source.bytes());
  }
}

void PeerCopies::transfer(cudaStream_t stream, const Op& op) {
  Peer& peer = peer_at(op.peer);
  if (op.kind == OpKind::send) {
    await(stream, op.peer, Counter::ready, peer.heard++);  // all before have left the staging memory
    copy_bytes(stream, op, staging_, op.source.data, op.source.bytes());
    signal(stream, op.peer, Counter::arrived, ++peer.delivered);
  } else {
    LLMTRAIN_CHECK(op.kind == OpKind::receive);
    await(stream, op.peer, Counter::arrived, ++peer.expected);
    copy_bytes(stream, op, op.destination.data, staging_, op.destination.bytes());
    signal(stream, op.peer, Counter::ready, ++peer.announced);
  }
}

void PeerCopies::queue(cudaStream_t stream, std::span<const Op> ops) {
  if (is_channel()) {
    for (const Op& op : ops) transfer(stream, op);
    return;
  }
  std::vector<Place> own, all(ops.size() * peers_.size());
  for (const Op& op : ops) own.push_back(place_of(op.destination));
  group_.comm.all_gather(std::as_writable_bytes(std::span(all)), std::as_bytes(std::span(own)));
  // Whoever is at this distance gets something from this rank, and this rank from whoever is as far on the other side.
  std::vector<int> distances;
  for (int distance = 1; distance < group_.size(); ++distance) {
    const auto goes = [&](const Op& op) { return goes_to(op, group_.at_distance(distance)); };
    if (std::ranges::any_of(ops, goes)) distances.push_back(distance);
  }
  for (const int distance : distances) {
    const int from = group_.at_distance(-distance);
    signal(stream, from, Counter::ready, ++peer_at(from).announced);
  }
  for (const int distance : distances) {
    const int to = group_.at_distance(distance);
    await(stream, to, Counter::ready, ++peer_at(to).heard);
    copy(stream, to, ops, std::span(all).subspan(static_cast<std::size_t>(to) * ops.size(), ops.size()));
    signal(stream, to, Counter::arrived, ++peer_at(to).delivered);
  }
  copy(stream, group_.rank, ops, {});
  for (const int distance : distances) {
    const int from = group_.at_distance(-distance);
    await(stream, from, Counter::arrived, ++peer_at(from).expected);
  }
}

}  // namespace llmtrain
