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

/// This rank's coordinates, as far as the stores need them.
struct StorePlace {
  int tensor_rank = 0;
  int tensor_size = 1;
  bool sequence = false;  ///< tensor ranks share the tokens
  int shards = 1;         ///< ranks that ZeRO shards over
  ChunkPlace chunk;
};

/// What both stores derive everything from: the table, this rank's layouts, and the data-parallel cut.
struct StoreShape {
  const ParamTable* table = nullptr;
  std::vector<StorageLayout> layouts;  ///< one a storage
  StorePlace place;
  int zero = 0;               ///< 0 in a shard group of one
  DType data = DType::fp32;   ///< of weights
  DType stats = DType::fp32;  ///< of gradients and masters

  StoreShape(const ParamTable& params, const StorePlace& where, int zero_level, DType data_type, DType stats_type);

  int storages() const { return static_cast<int>(layouts.size()); }
  const StorageSpec& spec(int storage) const { return table->storages[static_cast<std::size_t>(storage)]; }
  const StorageLayout& layout(int storage) const { return layouts[static_cast<std::size_t>(storage)]; }
  /// This rank's chunk of a storage's flat array.
  Tensor own_chunk(int storage, Tensor flat) const;
  /// The part this rank updates: its chunk, or everything under ZeRO-0. The same view of any flat array of the storage.
  Tensor updated(int storage, Tensor flat) const { return zero == 0 ? flat : own_chunk(storage, flat); }
  /// First element of updated() in the flat array.
  std::int64_t updated_begin(int storage) const;
  /// Parts of the own chunk that this rank counts in norms.
  std::vector<Span> counted(int storage) const { return counted_spans(spec(storage), layout(storage), place.chunk); }
  /// [rows, cols], or [n] for 1-D parameters, inside the flat array.
  Tensor shaped(int storage, Tensor flat) const;
};

/// The groups that stores communicate in; null for a group of one.
struct StoreGroups {
  Communicator* data = nullptr;       ///< all data-parallel ranks; used under ZeRO-0 alone
  Communicator* shard = nullptr;      ///< ranks that share a storage's chunks
  Communicator* replicate = nullptr;  ///< ranks with the same chunk
  Communicator* tensor = nullptr;
  Communicator* kv = nullptr;    ///< tensor ranks with the same K and V heads, where these are some but not all
  Communicator* tied = nullptr;  ///< first and last pipeline stage, which hold a tied weight both
};

/// Weights: whole on every rank (ZeRO-0 and 1). Where weights are as precise as masters they are one and the same.
class ParamStore {
 public:
  ParamStore(const StoreShape& shape, MemoryPlan& plan);
  /// Views into `arena`.
  void bind(const Arena& arena, const StoreGroups& groups);

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
  void bind(const Arena& arena, const StoreGroups& groups);

  /// Accumulators start afresh; `micro_batches` commits of each lease will follow.
  void begin_step(std::int64_t micro_batches);
  std::span<const Gradient> open(int lease);
  /// The lease's contribution of one micro-batch is complete on `stream`; the last one sends it off.
  void commit(int lease, Stream stream);
  /// Adds up what tensor ranks and the stages of a tied weight hold in parts; once a step, on the updated ranges alone.
  /// Work on `stream` after this sees reduced gradients.
  void finish(Stream stream);

  /// Reduced gradient that this rank updates with.
  Tensor updated(int storage) const { return shape_.updated(storage, flat_[static_cast<std::size_t>(storage)]); }
  /// This rank's chunk of the reduced gradient; shape.counted() says which parts of it norms take.
  Tensor own_chunk(int storage) const { return shape_.own_chunk(storage, flat_[static_cast<std::size_t>(storage)]); }
  /// The whole flat accumulator; reduced in all its chunks only under ZeRO-0 or in a group of one.
  Tensor flat(int storage) const { return flat_[static_cast<std::size_t>(storage)]; }

 private:
  void reduce(int storage, Event ready);
  void sum_over_holders(Stream stream);
  void sum_over_stages(Stream stream);

  const StoreShape& shape_;
  std::int64_t bucket_;
  std::vector<Slot> slots_;
  std::vector<Tensor> flat_;
  std::vector<int> contributions_;  // by storage: leases that hold it
  std::vector<std::int64_t> left_;  // by storage: commits still to come
  std::vector<bool> touched_;       // by storage: has a first contribution this step
  std::vector<Gradient> opened_;
  std::vector<Event> arrivals_;
  StoreGroups groups_;
};

}  // namespace llmtrain
