// SPDX-License-Identifier: Apache-2.0
/// ParamStore and GradStore: when weights exist on this rank and when gradients leave it. Layers borrow them lease by
/// lease (one block, the embedding, the head) and never see where chunks live.
///
/// | zero | weights | accumulator | reduced at the last micro-batch by | master, moments |
/// |-----:|---------|-------------|------------------------------------|-----------------|
/// | 0    | whole   | whole       | all-reduce                         | whole           |
/// | 1    | whole   | whole       | reduce-scatter                     | chunk           |
#pragma once

#include <span>
#include <vector>

#include "llmtrain/backend/communicator.hpp"
#include "llmtrain/memory/arena.hpp"
#include "llmtrain/memory/plan.hpp"
#include "llmtrain/parallel/context.hpp"
#include "llmtrain/params/ownership.hpp"

namespace llmtrain {

/// What both stores derive everything from: the table, this rank's layouts, and the data-parallel cut.
struct StoreShape {
  const ParamTable* table = nullptr;
  std::vector<StorageLayout> layouts;  ///< one a storage
  int zero = 0;
  int shard_rank = 0;
  int shards = 1;
  DType data = DType::fp32;   ///< of weights
  DType stats = DType::fp32;  ///< of gradients and masters

  StoreShape(const ParamTable& params, int tensor_rank, int tensor_size, int zero_level, int shard_index,
             int shard_count, DType data_type, DType stats_type);

  int storages() const { return static_cast<int>(layouts.size()); }
  /// This rank's chunk of a storage's flat array.
  Tensor own_chunk(int storage, Tensor flat) const;
  /// The part this rank updates: its chunk, or everything under ZeRO-0. The same view of any flat array of the storage.
  Tensor updated(int storage, Tensor flat) const { return zero == 0 ? flat : own_chunk(storage, flat); }
  /// First element of updated() in the flat array.
  std::int64_t updated_begin(int storage) const;
  /// [rows, cols], or [n] for 1-D parameters, inside the flat array.
  Tensor shaped(int storage, Tensor flat) const;
};

/// Weights: whole on every rank (ZeRO-0 and 1). Where weights are as precise as masters they are one and the same.
class ParamStore {
 public:
  ParamStore(const StoreShape& shape, MemoryPlan& plan);
  /// Views into `arena`; `shard` is null when nothing is gathered.
  void bind(const Arena& arena, Communicator* shard);

  /// Weights of a lease, ready on `stream`; the lease that follows is gathered meanwhile.
  std::span<const Tensor> acquire(int lease, Stream stream);
  void release(int lease, Stream stream);
  /// After an update: other ranks' chunks are stale and come with the next acquire.
  void publish(Stream stream);

  /// Flat master weights that this rank updates; also what a checkpoint stores.
  Tensor master(int storage) const;
  /// The whole flat array of weights; complete after its lease was acquired.
  Tensor whole(int storage) const { return flat_[static_cast<std::size_t>(storage)]; }
  /// The lower-precision copy that an update writes beside the master; absent where they are one.
  Tensor published(int storage) const;
  /// Fills masters and weights from (seed, name, element).
  void initialise(Kernels& kernels, Stream stream, std::uint64_t seed);
  /// Derives the weights from masters that were just loaded.
  void refresh(Kernels& kernels, Stream stream);

 private:
  void gather(int lease);

  const StoreShape& shape_;
  std::vector<Slot> slots_;
  std::vector<Slot> master_slots_;
  std::vector<Tensor> flat_;
  std::vector<Tensor> master_;
  std::vector<std::vector<Tensor>> leases_;
  std::vector<bool> stale_;     // by storage
  std::vector<Event> arrival_;  // by storage
  Event updated_;
  Communicator* shard_ = nullptr;
};

/// Gradient accumulators, whole on every rank, summed over the data-parallel group once a step.
class GradStore {
 public:
  GradStore(const StoreShape& shape, MemoryPlan& plan, std::int64_t bucket);
  void bind(const Arena& arena, Communicator* data);

  /// Accumulators start afresh; `micro_batches` commits of each lease will follow.
  void begin_step(std::int64_t micro_batches);
  std::span<const Gradient> open(int lease);
  /// The lease's contribution of one micro-batch is complete on `stream`; the last one sends it off.
  void commit(int lease, Stream stream);
  /// Work on `stream` after this sees reduced gradients.
  void finish(Stream stream);

  /// Reduced gradient that this rank updates with.
  Tensor updated(int storage) const { return shape_.updated(storage, flat_[static_cast<std::size_t>(storage)]); }
  /// This rank's chunk of the reduced gradient: each element is in exactly one rank's chunk (norms, dumps).
  Tensor own_chunk(int storage) const { return shape_.own_chunk(storage, flat_[static_cast<std::size_t>(storage)]); }
  /// The whole flat accumulator; reduced in all its chunks only under ZeRO-0 or in a group of one.
  Tensor flat(int storage) const { return flat_[static_cast<std::size_t>(storage)]; }

 private:
  void reduce(int storage, Event ready);

  const StoreShape& shape_;
  std::int64_t bucket_;
  std::vector<Slot> slots_;
  std::vector<Tensor> flat_;
  std::vector<int> contributions_;  // by storage: leases that hold it
  std::vector<std::int64_t> left_;  // by storage: commits still to come
  std::vector<bool> touched_;       // by storage: has a first contribution this step
  std::vector<Gradient> opened_;
  std::vector<Event> arrivals_;
  Communicator* data_ = nullptr;
};

}  // namespace llmtrain
