// SPDX-License-Identifier: Apache-2.0
/// Shape checks of collectives, once for all back ends.
#include "llmtrain/backend/communicator.hpp"

#include "llmtrain/backend/observer.hpp"

namespace llmtrain {

const char* name_of(Communicator::OpKind kind) {
  switch (kind) {
    case Communicator::OpKind::all_reduce: return "all_reduce";
    case Communicator::OpKind::reduce_scatter: return "reduce_scatter";
    case Communicator::OpKind::all_gather: return "all_gather";
    case Communicator::OpKind::broadcast: return "broadcast";
    case Communicator::OpKind::shift: return "shift";
    case Communicator::OpKind::copy: return "copy";
    case Communicator::OpKind::send: return "send";
    case Communicator::OpKind::receive: return "receive";
  }
  return "?";
}

void CopiedBatch::add(std::string_view name, std::int64_t source_bytes) {
  const bool gathers = name == "all_gather", shifts = name == "shift" || name == "copy";
  only_moves_ = only_moves_ && (gathers || shifts);
  shifts_ = shifts_ || shifts;
  gathered_bytes_ += gathers ? source_bytes : 0;
}

bool CopiedBatch::answer() const {
  constexpr std::int64_t large = std::int64_t{1} << 20;  // less comes together sooner on the GPU alone
  return only_moves_ && (shifts_ || gathered_bytes_ >= large);
}

void Communicator::Batch::all_reduce(Tensor tensor, ReduceOp op) {
  LLMTRAIN_CHECK(tensor.is_dense());
  ops_.push_back({OpKind::all_reduce, tensor, tensor, 0, op});
}

void Communicator::Batch::reduce_scatter(Tensor destination, Tensor source) {
  LLMTRAIN_CHECK(destination.is_dense() && source.is_dense() && destination.dtype == source.dtype);
  LLMTRAIN_CHECK(source.numel() == destination.numel() * communicator_.size());
  ops_.push_back({OpKind::reduce_scatter, destination, source, 0, ReduceOp::sum});
}

void Communicator::Batch::all_gather(Tensor destination, Tensor source) {
  LLMTRAIN_CHECK(destination.is_dense() && source.is_dense() && destination.dtype == source.dtype);
  LLMTRAIN_CHECK(destination.numel() == source.numel() * communicator_.size());
  ops_.push_back({OpKind::all_gather, destination, source, 0, ReduceOp::sum});
}

void Communicator::Batch::broadcast(Tensor tensor, int root) {
  LLMTRAIN_CHECK(tensor.is_dense() && root >= 0 && root < communicator_.size());
  ops_.push_back({OpKind::broadcast, tensor, tensor, root, ReduceOp::sum});
}

void Communicator::Batch::shift(Tensor destination, Tensor source, int distance) {
  LLMTRAIN_CHECK(destination.is_dense() && source.is_dense() && destination.dtype == source.dtype);
  LLMTRAIN_CHECK(destination.numel() == source.numel() && distance >= 1 && distance < communicator_.size());
  ops_.push_back({OpKind::shift, destination, source, distance, ReduceOp::sum});
}

void Communicator::Batch::copy(Tensor destination, Tensor source) {
  LLMTRAIN_CHECK(destination.is_dense() && source.is_dense() && destination.dtype == source.dtype);
  LLMTRAIN_CHECK(destination.numel() == source.numel());
  ops_.push_back({OpKind::copy, destination, source, 0, ReduceOp::sum});
}

void Communicator::Batch::send(Tensor tensor, int peer) {
  LLMTRAIN_CHECK(tensor.is_dense() && peer >= 0 && peer < communicator_.size());
  ops_.push_back({OpKind::send, Tensor{}, tensor, peer, ReduceOp::sum});
}

void Communicator::Batch::receive(Tensor tensor, int peer) {
  LLMTRAIN_CHECK(tensor.is_dense() && peer >= 0 && peer < communicator_.size());
  ops_.push_back({OpKind::receive, tensor, Tensor{}, peer, ReduceOp::sum});
}

Event Communicator::Batch::submit() {
  const std::vector<Op> ops = std::move(ops_);
  ops_.clear();
  if (ops.empty()) return ready_;
  const Event done = communicator_.do_submit(ops, ready_);
  if (OpObserver* observer = communicator_.device_.observer()) {
    std::vector<CollectiveNote> notes;
    for (const Op& op : ops) notes.push_back({name_of(op.kind), op.destination, op.source, op.peer, op.reduce});
    observer->on_batch({&communicator_.group_, notes, ready_, done});
  }
  return done;
}

}  // namespace llmtrain
