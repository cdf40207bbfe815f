// SPDX-License-Identifier: Apache-2.0
/// ParamStore and GradStore: when weights exist on this rank and when gradients leave it. Layers borrow them lease by
/// lease (one block, the embedding, the head) and never see where chunks live.
///
/// | zero | weights | accumulator | reduced          | by                                | master, moments |
/// |-----:|---------|-------------|------------------|-----------------------------------|-----------------|
/// | 0    | whole   | whole       | last micro-batch | all-reduce                        | whole           |
/// | 1    | whole   | whole       | last micro-batch | reduce-scatter                    | chunk           |
/// | 2    | whole   | chunk       | every one        | exchange, added to the chunk      | chunk           |
/// | 3    | chunk   | chunk       | every one        | exchange, added to the chunk      | chunk           |
///
/// Each storage tensor has its own row of this table: of ZeRO-3 only the large ones (persistence), of ZeRO-2 and 3 not
/// those of whole_gradients. Whole weights are gathered once after an update, at their first use; chunks at every use.
/// Where chunks have replicas, these add up their reduced gradients once a step. In the exchange a rank gets the
/// contributions of all others to its chunk, and adds them up itself: on the GPUs of one host these are copies beside the
/// products, where a reduce-scatter would take multiprocessors from them. In groups larger than policy.exchange it is a
/// reduce-scatter, which needs less memory, and so it is where any group leaves its node, for it sends less between nodes.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "llmtrain/backend/communicator.hpp"
#include "llmtrain/config/deck.hpp"
#include "llmtrain/memory/arena.hpp"
#include "llmtrain/memory/plan.hpp"
#include "llmtrain/memory/ring.hpp"
#include "llmtrain/parallel/context.hpp"
#include "llmtrain/params/ownership.hpp"

namespace llmtrain {

/// This rank's coordinates, as far as the stores need them.
struct StorePlace {
  int tensor_rank = 0;
  int tensor_size = 1;
  bool sequence = false;  ///< tensor ranks share the tokens
  int shards = 1;         ///< ranks that ZeRO shards over
  bool one_node = true;   ///< they are on one, and so are those of every other chunk's group
  int replicas = 1;       ///< of each chunk; shards x replicas ranks share the samples
  ChunkPlace chunk;
};

/// Types of what the stores and the optimizer hold.
struct StoreTypes {
  DType weights = DType::fp32;  ///< that layers compute with
  DType masters = DType::fp32;
  DType gradients = DType::fp32;  ///< accumulators
  DType reduce = DType::fp32;     ///< gradients on their way to the sum over `data` or `shard`
  DType moments = DType::fp32;
};

/// What both stores derive everything from: the table, this rank's layouts, and the data-parallel cut.
struct StoreShape {
  const ParamTable* table = nullptr;
  std::vector<StorageLayout> layouts;  ///< one a storage
  StorePlace place;
  ParallelConfig policy;
  int zero = 0;  ///< policy.zero, or 0 in a shard group of one
  StoreTypes types;
  std::vector<bool> whole_gradients;  ///< by storage

  StoreShape(const ParamTable& params, const StorePlace& where, const ParallelConfig& parallel,
             const StoreTypes& store_types);

  int storages() const { return static_cast<int>(layouts.size()); }
  const StorageSpec& spec(int storage) const { return table->storages[static_cast<std::size_t>(storage)]; }
  const StorageLayout& layout(int storage) const { return layouts[static_cast<std::size_t>(storage)]; }
  const std::vector<int>& storages_of(int lease) const {
    return table->leases[static_cast<std::size_t>(lease)].storages;
  }
  const char* lease_name(int lease) const { return table->leases[static_cast<std::size_t>(lease)].name.c_str(); }
  bool keeps_whole_weights(int storage) const;
  bool keeps_whole_gradient(int storage) const { return whole_gradients[static_cast<std::size_t>(storage)]; }
  /// Whether contributions to the chunks of a gradient that is not kept whole are exchanged.
  bool exchanges(int storage) const {
    return !keeps_whole_gradient(storage) && place.one_node && place.shards <= policy.exchange;
  }
  /// Whether whole accumulators travel as a copy in another type.
  bool converts_to_reduce() const { return types.reduce != types.gradients && place.shards * place.replicas > 1; }

  /// A rank's chunk of a storage's flat array, and this rank's.
  Tensor chunk(int storage, Tensor flat, int rank) const;
  Tensor own_chunk(int storage, Tensor flat) const { return chunk(storage, flat, place.chunk.shard); }
  /// The part of the flat array that this rank updates, its chunk, or everything under ZeRO-0: first element and number.
  std::int64_t updated_begin(int storage) const;
  std::int64_t updated_elements(int storage) const {
    return zero == 0 ? layout(storage).padded : layout(storage).chunk;
  }
  /// Parts of the own chunk that this rank counts in norms.
  std::vector<Span> counted(int storage) const { return counted_spans(spec(storage), layout(storage), place.chunk); }
  /// [rows, cols], or [n] for 1-D parameters, inside the flat array.
  Tensor shaped(int storage, Tensor flat) const;
};

class BucketBatch;

/// The groups that stores communicate in; null for a group of one.
struct StoreGroups {
  Communicator* data = nullptr;       ///< all data-parallel ranks; used under ZeRO-0 alone
  Communicator* shard = nullptr;      ///< ranks that share a storage's chunks
  Communicator* replicate = nullptr;  ///< ranks with the same chunk
  Communicator* tensor = nullptr;
  Communicator* kv = nullptr;    ///< tensor ranks with the same K and V heads, where these are some but not all
  Communicator* tied = nullptr;  ///< first and last pipeline stage, which hold a tied weight both
};

/// Leases in the order in which they are borrowed.
using LeaseSequence = std::vector<int>;

/// Weights. Where they are as precise as masters they are one and the same.
class ParamStore {
 public:
  /// `passes`: all sequences that begin_pass() will announce.
  ParamStore(const StoreShape& shape, std::vector<LeaseSequence> passes, MemoryPlan& plan);
  /// Views into `arena`.
  void bind(const Arena& arena, const StoreGroups& groups);

  /// The leases that will be acquired on `stream` next; starts to gather the first ones. Not needed in groups of one.
  void begin_pass(const LeaseSequence& leases, Stream stream);
  /// Weights of a lease, ready on `stream`.
  std::span<const Tensor> acquire(int lease, Stream stream);
  /// Work on `stream` up to here is the lease's last. What policy.prefetch allows beside the next lease starts to be gathered
  /// into the room that is free now: before the lease's gradients leave, which the group sends one after the other and
  /// nobody waits for so soon.
  void release(int lease, Stream stream);
  /// After an update: other ranks' chunks are stale and come with the next acquire.
  void publish();
  /// Times that weights were published.
  std::int64_t updates() const { return updates_; }

  /// Flat master weights that this rank updates; also what a checkpoint stores.
  Tensor master(int storage) const;
  /// The whole flat array of weights that stay whole; complete after its lease was acquired.
  Tensor whole(int storage) const;
  /// This rank's chunk of the weights that layers compute with.
  Tensor own_chunk(int storage) const;
  /// The lower-precision copy that an update writes beside the master; absent where they are one.
  Tensor published(int storage) const;
  /// Fills masters and weights from (seed, name, element).
  void initialise(Kernels& kernels, Stream stream, std::uint64_t seed);
  /// Derives the weights from masters that were just loaded.
  void refresh(Kernels& kernels, Stream stream);

 private:
  /// A lease in use, once or several times in a row.
  struct Stay {
    int lease = 0;
    int uses = 0;
    int gathered = 0;  ///< the last stay that is gathered, or being so, while this one is in use
  };
  struct Pass {
    LeaseSequence leases;
    std::vector<Stay> stays;
    BufferRing ring;  ///< of what is gathered at every use, one buffer a stay
  };
  Pass plan_pass(LeaseSequence leases) const;
  std::int64_t gathered_elements(int lease) const;
  void gather_ahead(int stay);
  void gather(int stay);
  Tensor weights(int stay, std::size_t storage_of_lease) const;

  const StoreShape& shape_;
  std::vector<Pass> passes_;
  std::vector<Slot> slots_;
  std::vector<Slot> master_slots_;
  Slot ring_slot_;
  std::vector<Tensor> held_;  ///< by storage: the whole flat array, or this rank's chunk
  std::vector<Tensor> master_;
  Tensor ring_;
  Communicator* shard_ = nullptr;
  std::vector<bool> stale_;  ///< by storage
  std::int64_t updates_ = 0;

  const Pass* pass_ = nullptr;
  int stay_ = -1;               ///< in use
  int uses_left_ = 0;           ///< of it
  int gathered_ = 0;            ///< stays gathered so far
  Event begun_;                 ///< all that was issued before the pass
  std::vector<Event> arrival_;  ///< by stay
  std::vector<Event> released_;
  std::vector<Tensor> acquired_;
};

/// Gradient accumulators, summed over the data-parallel group.
class GradStore {
 public:
  /// `opens`: the leases that a step opens, in order.
  GradStore(const StoreShape& shape, LeaseSequence opens, MemoryPlan& plan);
  void bind(const Arena& arena, const StoreGroups& groups);

  /// Accumulators start afresh; work that writes them is issued on `stream`.
  void begin_step(Stream stream);
  /// One lease is open at a time.
  std::span<const Gradient> open(int lease);
  /// The lease's contribution of one micro-batch is complete on `stream`, and sent off if it is time to.
  void commit(int lease, Stream stream);
  /// Adds up what tensor ranks and the stages of a tied weight hold in parts; once a step, on the updated ranges alone.
  /// Work on `stream` after this sees reduced gradients.
  void finish(Stream stream);

  /// Reduced gradient that this rank updates with.
  Tensor updated(int storage) const { return shape_.zero == 0 ? flat(storage) : own_chunk(storage); }
  /// This rank's chunk of the reduced gradient; shape.counted() says which parts of it norms take.
  Tensor own_chunk(int storage) const;
  /// A whole flat accumulator; reduced in all its chunks only under ZeRO-0 or in a group of one.
  Tensor flat(int storage) const;

 private:
  /// A reduction on its way.
  struct Flight {
    int use = 0;
    int storage = 0;
    std::vector<Tensor> received;  ///< added up, go into the accumulator; none where the sum is there by itself
    Write write = Write::accumulate;
    Event arrival{};
  };
  bool is_last(int use, int storage) const { return last_open_[static_cast<std::size_t>(storage)] == use; }
  /// Whether the storage has a buffer in the ring: its contribution is computed there, or its copy travels from there.
  bool is_buffered(int use, int storage) const;
  Tensor buffer(int use, std::size_t storage_of_lease) const;
  /// Where contributions of the group's ranks to this rank's chunk come together, by rank: its own in the buffer, the
  /// others behind all buffers of the lease.
  std::vector<Tensor> contributions(int use, std::size_t storage_of_lease) const;
  std::int64_t buffer_bytes(int use) const;
  std::int64_t contribution_bytes(int use, std::size_t count = SIZE_MAX) const;
  /// What an open lends of a storage: the whole accumulator, or its buffer.
  Tensor lent(int use, std::size_t storage_of_lease) const;

  void reduce_whole(int lease, Event ready);
  void exchange(BucketBatch& batch, std::size_t storage_of_lease, const std::vector<Tensor>& contributions) const;
  void reduce_chunks(int lease, Event ready);
  void depart(std::vector<Flight> flights, Event arrival);
  void sum_over_replicas(const std::vector<int>& storages, Event ready);
  void settle(int use, Stream stream);
  void sum_over_holders(Stream stream);
  void sum_over_stages(Stream stream);

  const StoreShape& shape_;
  const LeaseSequence opens_;
  std::vector<int> last_open_;  ///< by storage: the open that completes its sum
  BufferRing ring_plan_;        ///< one buffer an open
  std::vector<Slot> slots_;
  Slot ring_slot_;
  std::vector<Tensor> held_;  ///< by storage: the whole flat accumulator, or this rank's chunk
  Tensor ring_;
  StoreGroups groups_;

  Stream stream_;
  int use_ = -1;               ///< the open lease's place in opens_
  std::vector<bool> touched_;  ///< by storage: has a first contribution this step
  std::vector<Gradient> opened_;
  std::deque<Flight> flights_;
  // What finish() waits for: the last batch of each group, for a group completes its batches in order.
  Event reduced_;  ///< over `data` or `shard`
  Event replicas_summed_;
};

}  // namespace llmtrain
