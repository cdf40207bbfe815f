// SPDX-License-Identifier: Apache-2.0
/// Communicator: tensor collectives of one group, split-phase: collect operations in a Batch, submit, wait for the event.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "llmtrain/backend/device.hpp"

namespace llmtrain {

enum class ReduceOp { sum, max };

/// Operations of one communicator run in issue order; the members of a batch run together. Every rank of the group
/// issues the same batches in the same order; that is why only one host thread may use a communicator.
class Communicator {
 public:
  virtual ~Communicator() = default;

  const Group& group() const { return group_; }
  int size() const { return group_.size(); }
  int rank() const { return group_.rank; }

  enum class OpKind { all_reduce, reduce_scatter, all_gather, broadcast, shift, copy, send, receive };
  struct Op {
    OpKind kind;
    Tensor destination;
    Tensor source;
    int peer = 0;  ///< root of a broadcast, partner of a send or receive: a rank of the group; distance of a shift
    ReduceOp reduce = ReduceOp::sum;
  };

  /// Collects operations that start after `ready` and complete at the event that submit() returns. Tensors must be
  /// dense and stay untouched in between, except the in-place forms below.
  class Batch {
   public:
    Batch(Communicator& communicator, Event ready) : communicator_(communicator), ready_(ready) {}

    /// In place over the group. Sums are in rank order (CPU), so they do not depend on how tensors are cut.
    void all_reduce(Tensor tensor, ReduceOp op = ReduceOp::sum);
    /// destination [n] = this rank's n of the sum of `source` [size * n]; destination may be that part of source.
    void reduce_scatter(Tensor destination, Tensor source);
    /// destination [size * n] = every rank's source [n], by rank; source may be this rank's part of destination.
    void all_gather(Tensor destination, Tensor source);
    void broadcast(Tensor tensor, int root);
    /// Around the ring of all ranks: `source` goes to rank + distance, destination comes from rank - distance, modulo the
    /// group's size.
    void shift(Tensor destination, Tensor source, int distance);
    /// On this rank alone, beside what its streams compute.
    void copy(Tensor destination, Tensor source);
    void send(Tensor tensor, int peer);
    void receive(Tensor tensor, int peer);

    /// Starts the batch and returns the event of its completion. An empty batch, or a group of one rank, completes at
    /// once (a group of one still copies where source and destination differ).
    Event submit();

   private:
    Communicator& communicator_;
    Event ready_;
    std::vector<Op> ops_;
  };

 protected:
  Communicator(Device& device, Group group) : device_(device), group_(std::move(group)) {}
  Device& device_;
  Group group_;

 private:
  virtual Event do_submit(std::span<const Op> ops, Event ready) = 0;
};

/// Name of an operation kind as notes and tables print it.
const char* name_of(Communicator::OpKind kind);

/// Into `batch`, by shifts: every rank of the group sends sent(rank) to each other one, and gets received(rank) from it.
template <class Batch, class Received, class Sent>
void exchange_parts(Batch& batch, const Group& group, const Received& received, const Sent& sent) {
  for (int distance = 1; distance < group.size(); ++distance) {
    batch.shift(received(group.at_distance(-distance)), sent(group.at_distance(distance)), distance);
  }
}

/// Whether the copy engines of the GPUs of one host, where there are such, do a batch: if it only moves data, by shifts and
/// copies or, with small ones among them, by large all-gathers.
class CopiedBatch {
 public:
  void add(std::string_view name, std::int64_t source_bytes);
  bool answer() const;

 private:
  bool only_moves_ = true, shifts_ = false;
  std::int64_t gathered_bytes_ = 0;
};

}  // namespace llmtrain
