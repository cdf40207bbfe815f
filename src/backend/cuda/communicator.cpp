// SPDX-License-Identifier: Apache-2.0
/// The life of an NCCL communicator: id over MPI, creation within a time limit, batches as groups, errors polled; and which
/// batches are not NCCL's.
#include "communicator.hpp"

#include <fmt/format.h>

#include <chrono>
#include <exception>
#include <thread>

namespace llmtrain {

namespace {

constexpr std::chrono::seconds patience(180);  // for a call that needs all ranks

ncclDataType_t nccl_type(DType type) {
  switch (type) {
    case DType::fp64: return ncclFloat64;
    case DType::fp32: return ncclFloat32;
    case DType::bf16: return ncclBfloat16;
    case DType::fp16: return ncclFloat16;
    case DType::int64: return ncclInt64;
    case DType::int32: return ncclInt32;
    default: return ncclUint8;
  }
}

ncclRedOp_t nccl_op(ReduceOp op) { return op == ReduceOp::sum ? ncclSum : ncclMax; }

std::size_t count(const Tensor& t) { return static_cast<std::size_t>(t.numel()); }

}  // namespace

NcclCommunicator::NcclCommunicator(CudaDevice& device, const Group& group, const Tensor& workspace)
    : Communicator(device, group), cuda_(device), stream_(device.make_communication_stream()) {
  if (size() > 1) {
    ncclUniqueId id{};
    if (rank() == 0) settle(ncclGetUniqueId(&id), "ncclGetUniqueId");
    group_.comm.broadcast(std::as_writable_bytes(std::span(&id, 1)), 0);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    settle(ncclCommInitRankConfig(&comm_, size(), id, rank(), &config), "ncclCommInitRankConfig");
  }
  cuda_.attach(this);
  if (size() != 2) return;
  peers_ = channel_copies(workspace);
  if (peers_ == nullptr) connect_pair();
}

NcclCommunicator::~NcclCommunicator() {
  cuda_.detach(this);
  if (comm_ == nullptr) return;
  if (broken_ || std::uncaught_exceptions() > 0) {
    ncclCommAbort(comm_);
    return;
  }
  try {
    cuda_.synchronize(stream_);
    if (peers_ != nullptr) peers_->close();
    settle(ncclCommFinalize(comm_), "ncclCommFinalize");
    ncclCommDestroy(comm_);
  } catch (const std::exception& error) {
    fmt::print(stderr, "error: while closing group '{}': {}\n", group_.name, error.what());
    if (peers_ != nullptr) peers_->close();  // the others wait for this rank there
    ncclCommAbort(comm_);
  }
}

void NcclCommunicator::connect_pair() {
  void* byte = nullptr;
  check_cuda(cudaMalloc(&byte, 1), "cudaMalloc");
  const Tensor data = Tensor::dense(byte, DType::uint8, {1});
  const Op transfer = rank() == 0 ? Op{OpKind::send, {}, data, 1} : Op{OpKind::receive, data, {}, 0};
  do_submit({&transfer, 1}, {});
  cuda_.synchronize(stream_);
  check_cuda(cudaFree(byte), "cudaFree");
}

std::unique_ptr<PeerCopies> NcclCommunicator::channel_copies(const Tensor& staging) {
  if (group_.comm.all_reduce(std::int64_t{staging ? 1 : 0}, MpiOp::max) == 0) return nullptr;
  std::unique_ptr<PeerCopies> copies = PeerCopies::connect(cuda_, group_);
  if (copies != nullptr) copies->open_channel(staging);
  return copies;
}

void NcclCommunicator::break_off(const std::string& why) {
  broken_ = true;
  fail(ExitCode::hang, "group '{}', rank {} of {}: NCCL: {}; NCCL_DEBUG=WARN in the environment tells more",
       group_.name, rank(), size(), why);
}

void NcclCommunicator::settle(ncclResult_t status, const char* call) {
  const auto deadline = std::chrono::steady_clock::now() + patience;
  while (status == ncclInProgress) {
    if (std::chrono::steady_clock::now() > deadline) {
      break_off(fmt::format("{} did not come to an end within {} seconds", call, patience.count()));
    }
    std::this_thread::yield();
    if (ncclCommGetAsyncError(comm_, &status) != ncclSuccess) status = ncclInternalError;
  }
  if (status == ncclSuccess) return;
  const char* detail = ncclGetLastError(comm_);
  break_off(fmt::format("{}: {}{}{}", call, ncclGetErrorString(status), detail != nullptr && *detail ? ": " : "",
                        detail != nullptr ? detail : ""));
}

void NcclCommunicator::check() {
  if (comm_ == nullptr || broken_) return;
  ncclResult_t status = ncclSuccess;
  if (ncclCommGetAsyncError(comm_, &status) != ncclSuccess) status = ncclInternalError;
  if (status != ncclSuccess && status != ncclInProgress) settle(status, "work in the background");
}

void NcclCommunicator::copy_to_itself(const Op& op) const {
  const bool copies = op.kind == OpKind::reduce_scatter || op.kind == OpKind::all_gather || op.kind == OpKind::copy;
  if (!copies || op.destination.data == op.source.data || op.source.bytes() == 0) return;
  check_cuda(cudaMemcpyAsync(op.destination.data, op.source.data, static_cast<std::size_t>(op.source.bytes()),
                             cudaMemcpyDeviceToDevice, cuda_.native(stream_)),
             name_of(op.kind));
}

void NcclCommunicator::issue(const Op& op) const {
  const cudaStream_t stream = cuda_.native(stream_);
  const Tensor &to = op.destination, &from = op.source;
  const auto queue = [&]() -> ncclResult_t {
    switch (op.kind) {
      case OpKind::all_reduce:
        return ncclAllReduce(from.data, to.data, count(to), nccl_type(to.dtype), nccl_op(op.reduce), comm_, stream);
      case OpKind::reduce_scatter:
        return ncclReduceScatter(from.data, to.data, count(to), nccl_type(to.dtype), nccl_op(op.reduce), comm_, stream);
      case OpKind::all_gather:
        return ncclAllGather(from.data, to.data, count(from), nccl_type(to.dtype), comm_, stream);
      case OpKind::broadcast:
        return ncclBroadcast(from.data, to.data, count(to), nccl_type(to.dtype), op.peer, comm_, stream);
      case OpKind::shift: {
        const ncclResult_t sent =
            ncclSend(from.data, count(from), nccl_type(from.dtype), group_.at_distance(op.peer), comm_, stream);
        if (sent != ncclSuccess && sent != ncclInProgress) return sent;
        return ncclRecv(to.data, count(to), nccl_type(to.dtype), group_.at_distance(-op.peer), comm_, stream);
      }
      case OpKind::copy: copy_to_itself(op); return ncclSuccess;
      case OpKind::send: return ncclSend(from.data, count(from), nccl_type(from.dtype), op.peer, comm_, stream);
      case OpKind::receive: return ncclRecv(to.data, count(to), nccl_type(to.dtype), op.peer, comm_, stream);
    }
    return ncclInvalidArgument;
  };
  const ncclResult_t status = queue();  // in a group, errors and progress belong to its end
  require(status == ncclSuccess || status == ncclInProgress, ExitCode::internal, "NCCL: {} of {}: {}", name_of(op.kind),
          to ? to.describe() : from.describe(), ncclGetErrorString(status));
}

PeerCopies* NcclCommunicator::copies_for(std::span<const Op> ops) {
  if (peers_ != nullptr && peers_->is_channel()) return peers_.get();
  if (!PeerCopies::takes(ops)) return nullptr;
  if (!asked_peers_) peers_ = PeerCopies::connect(cuda_, group_);
  asked_peers_ = true;
  return peers_.get();
}

Event NcclCommunicator::do_submit(std::span<const Op> ops, Event ready) {
  cuda_.follow(stream_, ready);
  if (size() == 1) {
    for (const Op& op : ops) copy_to_itself(op);
    return cuda_.mark(stream_, group_);
  }
  check();
  if (PeerCopies* const copies = copies_for(ops)) {
    copies->queue(cuda_.native(stream_), ops);
    return cuda_.mark(stream_, group_);
  }
  settle(ncclGroupStart(), "ncclGroupStart");
  for (const Op& op : ops) issue(op);
  settle(ncclGroupEnd(), "a batch of collectives");
  return cuda_.mark(stream_, group_);
}

}  // namespace llmtrain
