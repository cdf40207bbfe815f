// SPDX-License-Identifier: Apache-2.0
/// What an operation or collective tells whoever listens: the planner, the hazard checker, the profile.
#pragma once

#include <initializer_list>
#include <span>
#include <vector>

#include "llmtrain/backend/communicator.hpp"

namespace llmtrain {

/// One operation as issued. Tensors that are both read and written stand in both lists.
struct OpNote {
  const char* name;
  Stream stream;
  std::span<const Tensor> writes;
  std::span<const Tensor> reads;
  double flops = 0;       ///< multiply-adds counted as two; 0 for memory-bound operations
  const char* form = "";  ///< of a gemm: "nn", "nt" or "tn", with " gelu" where it ends in one
};

/// One collective of a batch.
struct CollectiveNote {
  const char* name;  ///< "all_reduce", "reduce_scatter", ...
  Tensor destination;
  Tensor source;
  int peer = 0;  ///< root of a broadcast, partner of a transfer; a rank of the group
  ReduceOp reduce = ReduceOp::sum;
};

/// A batch as issued: it starts after `ready` and after the batch before it of the same group, and completes at `done`.
struct BatchNote {
  const Group* group;  ///< of the communicator: as long as that lives, its address names the communicator
  std::span<const CollectiveNote> collectives;
  Event ready;
  Event done;
};

/// Memory that a store lends: whoever borrowed it must not touch it after the lease.
struct LeaseNote {
  enum class Kind {
    begins,
    ends,
    all_over,  ///< the store itself works on what was lent, until it is lent again
  };
  Kind kind;
  const char* name = "";  ///< of what is lent
  std::span<const Tensor> tensors = {};
};

class OpObserver {
 public:
  virtual ~OpObserver() = default;
  virtual void on_operation(const OpNote& note) = 0;
  virtual void on_batch(const BatchNote& note) = 0;
  // What orders operations of different streams.
  virtual void on_record(Stream, Event) {}
  virtual void on_wait(Stream, Event) {}
  virtual void on_synchronize(Stream) {}
  virtual void on_lease(const LeaseNote&) {}
};

/// Tells several observers, in order. None is owned.
class Observers final : public OpObserver {
 public:
  Observers(std::initializer_list<OpObserver*> observers) : observers_(observers) {}
  void on_operation(const OpNote& note) override {
    for (OpObserver* o : observers_) o->on_operation(note);
  }
  void on_batch(const BatchNote& note) override {
    for (OpObserver* o : observers_) o->on_batch(note);
  }
  void on_record(Stream stream, Event event) override {
    for (OpObserver* o : observers_) o->on_record(stream, event);
  }
  void on_wait(Stream stream, Event event) override {
    for (OpObserver* o : observers_) o->on_wait(stream, event);
  }
  void on_synchronize(Stream stream) override {
    for (OpObserver* o : observers_) o->on_synchronize(stream);
  }
  void on_lease(const LeaseNote& note) override {
    for (OpObserver* o : observers_) o->on_lease(note);
  }

 private:
  std::vector<OpObserver*> observers_;
};

}  // namespace llmtrain
