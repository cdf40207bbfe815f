// SPDX-License-Identifier: Apache-2.0
/// Accumulators by chunk or whole, and the reductions that leave for them while backward goes on.
#include <algorithm>
#include <limits>
#include <optional>

#include "bucket_batch.hpp"
#include "lease_buffer.hpp"
#include "lease_notes.hpp"
#include "llmtrain/backend/kernels.hpp"
#include "llmtrain/parallel/stores.hpp"

namespace llmtrain {

GradStore::GradStore(const StoreShape& shape, LeaseSequence opens, MemoryPlan& plan)
    : shape_(shape), opens_(std::move(opens)), last_open_(static_cast<std::size_t>(shape.storages()), -1) {
  for (int i = 0; i < shape.storages(); ++i) {
    const std::int64_t elements = shape.keeps_whole_gradient(i) ? shape.layout(i).padded : shape.layout(i).chunk;
    slots_.push_back(plan.request(Segment::grads, shape.spec(i).name, shape.types.gradients, {elements}));
  }
  const int opened = static_cast<int>(opens_.size());
  for (int use = 0; use < opened; ++use) {
    for (const int storage : shape.storages_of(opens_[static_cast<std::size_t>(use)])) {
      last_open_[static_cast<std::size_t>(storage)] = use;
    }
  }
  // A lease's buffer is written while that of the lease before it is on its way.
  std::vector<BufferUse> uses;
  for (int use = 0; use < opened; ++use) uses.push_back({buffer_bytes(use) + contribution_bytes(use), use, use + 1});
  ring_plan_ = plan_ring(uses);
  if (ring_plan_.bytes > 0) {
    ring_slot_ = plan.request(Segment::comm, "gradients to reduce", DType::uint8, {ring_plan_.bytes});
  }
}

void GradStore::bind(const Arena& arena, const StoreGroups& groups) {
  groups_ = groups;
  for (const Slot slot : slots_) held_.push_back(arena[slot]);
  if (ring_slot_) ring_ = arena[ring_slot_];
}

void GradStore::begin_step(Stream stream) {
  stream_ = stream;
  use_ = -1;
  touched_.assign(held_.size(), false);
}

Tensor GradStore::own_chunk(int storage) const {
  const Tensor held = held_[static_cast<std::size_t>(storage)];
  return shape_.keeps_whole_gradient(storage) ? shape_.own_chunk(storage, held) : held;
}

Tensor GradStore::flat(int storage) const {
  LLMTRAIN_CHECK(shape_.keeps_whole_gradient(storage));
  return held_[static_cast<std::size_t>(storage)];
}

bool GradStore::is_buffered(int use, int storage) const {
  return !shape_.keeps_whole_gradient(storage) || (shape_.converts_to_reduce() && is_last(use, storage));
}

Tensor GradStore::buffer(int use, std::size_t storage_of_lease) const {
  const auto at = static_cast<std::size_t>(use);
  return in_lease_buffer(shape_, ring_, ring_plan_.offsets[at], opens_[at], storage_of_lease, shape_.types.reduce,
                         [&](int storage) { return is_buffered(use, storage); });
}

std::int64_t GradStore::buffer_bytes(int use) const {
  return lease_buffer_bytes(shape_, opens_[static_cast<std::size_t>(use)], shape_.types.reduce,
                            [&](int storage) { return is_buffered(use, storage); });
}

std::int64_t GradStore::contribution_bytes(int use, std::size_t count) const {
  const std::int64_t whole = lease_buffer_bytes(
      shape_, opens_[static_cast<std::size_t>(use)], shape_.types.reduce,
      [&](int storage) { return shape_.exchanges(storage); }, count);
  return whole / shape_.place.shards * (shape_.place.shards - 1);
}

std::vector<Tensor> GradStore::contributions(int use, std::size_t storage_of_lease) const {
  const auto at = static_cast<std::size_t>(use);
  const int storage = shape_.storages_of(opens_[at])[storage_of_lease];
  const std::int64_t elements = shape_.layout(storage).chunk;
  std::byte* next = static_cast<std::byte*>(ring_.data) + ring_plan_.offsets[at] + buffer_bytes(use) +
                    contribution_bytes(use, storage_of_lease);
  std::vector<Tensor> all;
  for (int rank = 0; rank < shape_.place.shards; ++rank) {
    if (rank == shape_.place.chunk.shard) {
      all.push_back(shape_.own_chunk(storage, buffer(use, storage_of_lease)));
      continue;
    }
    all.push_back(Tensor::dense(next, shape_.types.reduce, {elements}));
    next += all.back().bytes();
  }
  return all;
}

Tensor GradStore::lent(int use, std::size_t storage_of_lease) const {
  const int storage = shape_.storages_of(opens_[static_cast<std::size_t>(use)])[storage_of_lease];
  return shape_.keeps_whole_gradient(storage) ? flat(storage) : buffer(use, storage_of_lease);
}

std::span<const Gradient> GradStore::open(int lease) {
  ++use_;
  LLMTRAIN_CHECK(use_ < static_cast<int>(opens_.size()) && opens_[static_cast<std::size_t>(use_)] == lease);
  settle(ring_plan_.before[static_cast<std::size_t>(use_)], stream_);
  opened_.clear();
  const std::vector<int>& storages = shape_.storages_of(lease);
  for (std::size_t i = 0; i < storages.size(); ++i) {
    const int storage = storages[i];
    const Tensor whole = lent(use_, i);
    note_lease(stream_, LeaseNote::Kind::begins, shape_.lease_name(lease), std::span(&whole, 1));
    if (shape_.keeps_whole_gradient(storage)) {
      const auto at = static_cast<std::size_t>(storage);
      const Write write = touched_[at] ? Write::accumulate : Write::overwrite;
      opened_.push_back({shape_.shaped(storage, whole), write});
      touched_[at] = true;
      continue;
    }
    const std::int64_t used = shape_.layout(storage).numel(), padding = whole.numel() - used;
    if (padding > 0) stream_.device->kernels().fill(stream_, whole.flat(used, padding), 0.0);
    opened_.push_back({shape_.shaped(storage, whole), Write::overwrite});
  }
  return opened_;
}

void GradStore::commit(int lease, Stream stream) {
  LLMTRAIN_CHECK(use_ >= 0 && opens_[static_cast<std::size_t>(use_)] == lease);
  const std::vector<int>& storages = shape_.storages_of(lease);
  for (std::size_t i = 0; i < storages.size(); ++i) {
    const Tensor whole = lent(use_, i);
    note_lease(stream, LeaseNote::Kind::ends, shape_.lease_name(lease), std::span(&whole, 1));
  }
  const bool leaves = std::any_of(storages.begin(), storages.end(), [&](int storage) {
    return is_last(use_, storage) || !shape_.keeps_whole_gradient(storage);
  });
  if (!leaves || (shape_.zero == 0 && groups_.data == nullptr)) return;
  for (std::size_t i = 0; i < storages.size(); ++i) {
    const int storage = storages[i];
    if (!shape_.keeps_whole_gradient(storage) || !is_buffered(use_, storage)) continue;
    const OwnLease own(stream, shape_.lease_name(lease), {buffer(use_, i), flat(storage)});
    stream.device->kernels().convert(stream, buffer(use_, i), flat(storage));
  }
  if (shape_.zero == 0) {
    reduce_whole(lease, stream.record());
  } else {
    reduce_chunks(lease, stream.record());
  }
}

/// ZeRO-0: sums what is complete over all data-parallel ranks.
void GradStore::reduce_whole(int lease, Event ready) {
  BucketBatch batch(*groups_.data, ready, shape_.policy.bucket);
  std::vector<Flight> flights;
  const std::vector<int>& storages = shape_.storages_of(lease);
  for (std::size_t i = 0; i < storages.size(); ++i) {
    const int storage = storages[i];
    if (!is_last(use_, storage)) continue;
    const Tensor copy = is_buffered(use_, storage) ? buffer(use_, i) : Tensor{};
    batch.all_reduce(copy ? copy : flat(storage));
    if (copy) flights.push_back({use_, storage, {copy}, Write::overwrite});
  }
  depart(std::move(flights), batch.submit());
}

void GradStore::exchange(BucketBatch& batch, std::size_t storage_of_lease,
                         const std::vector<Tensor>& contributions) const {
  const int storage = shape_.storages_of(opens_[static_cast<std::size_t>(use_)])[storage_of_lease];
  const Tensor whole = buffer(use_, storage_of_lease);
  exchange_parts(
      batch, groups_.shard->group(), [&](int rank) { return contributions[static_cast<std::size_t>(rank)]; },
      [&](int rank) { return shape_.chunk(storage, whole, rank); });
}

void GradStore::reduce_chunks(int lease, Event ready) {
  BucketBatch batch(*groups_.shard, ready, shape_.policy.bucket);
  std::vector<int> complete;  // their sums go straight into the accumulator, so replicas can follow
  std::vector<Flight> flights;
  const std::vector<int>& storages = shape_.storages_of(lease);
  for (std::size_t i = 0; i < storages.size(); ++i) {
    const int storage = storages[i];
    const bool whole = shape_.keeps_whole_gradient(storage), last = is_last(use_, storage);
    if (whole && !last) continue;
    const bool touched = touched_[static_cast<std::size_t>(storage)];
    const Write write = whole || !touched ? Write::overwrite : Write::accumulate;
    touched_[static_cast<std::size_t>(storage)] = true;
    if (shape_.exchanges(storage)) {
      flights.push_back({use_, storage, contributions(use_, i), write});
      exchange(batch, i, flights.back().received);
      continue;
    }
    const bool straight = write == Write::overwrite && shape_.types.reduce == shape_.types.gradients;
    const Tensor source = is_buffered(use_, storage) ? buffer(use_, i) : flat(storage);
    const Tensor sum = straight ? own_chunk(storage) : shape_.own_chunk(storage, source);
    batch.reduce_scatter(sum, source);
    if (is_buffered(use_, storage)) {
      flights.push_back({use_, storage, straight ? std::vector<Tensor>{} : std::vector{sum}, write});
    }
    if (straight && last) complete.push_back(storage);
  }
  depart(std::move(flights), batch.submit());
  sum_over_replicas(complete, reduced_);
}

void GradStore::depart(std::vector<Flight> flights, Event arrival) {
  reduced_ = arrival;
  for (Flight& flight : flights) {
    flight.arrival = arrival;
    flights_.push_back(flight);
  }
}

void GradStore::sum_over_replicas(const std::vector<int>& storages, Event ready) {
  if (groups_.replicate == nullptr || storages.empty()) return;
  BucketBatch batch(*groups_.replicate, ready, shape_.policy.bucket);
  for (const int storage : storages) batch.all_reduce(own_chunk(storage));
  replicas_summed_ = batch.submit();
}

/// Takes in what reductions of the opens up to `use` brought; their buffers are free on `stream`.
void GradStore::settle(int use, Stream stream) {
  Kernels& kernels = stream.device->kernels();
  while (!flights_.empty() && flights_.front().use <= use) {
    const int landed = flights_.front().use;
    stream.wait(flights_.front().arrival);  // one batch, or the last of several
    std::vector<int> complete;
    for (; !flights_.empty() && flights_.front().use == landed; flights_.pop_front()) {
      const Flight& flight = flights_.front();
      if (flight.received.empty()) continue;
      const Tensor sum = updated(flight.storage);
      std::vector<Tensor> used = flight.received;
      used.push_back(sum);
      const OwnLease own(stream, shape_.lease_name(opens_[static_cast<std::size_t>(landed)]), std::move(used));
      kernels.sum_parts(stream, sum, flight.received, flight.write);
      if (is_last(landed, flight.storage)) complete.push_back(flight.storage);
    }
    if (!complete.empty()) sum_over_replicas(complete, stream.record());
  }
}

void GradStore::finish(Stream stream) {
  LLMTRAIN_CHECK(use_ + 1 == static_cast<int>(opens_.size()));
  settle(std::numeric_limits<int>::max(), stream);
  note_lease(stream, LeaseNote::Kind::all_over);
  stream.wait(reduced_);
  stream.wait(replicas_summed_);
  reduced_ = replicas_summed_ = {};
  sum_over_holders(stream);
  sum_over_stages(stream);
}

void GradStore::sum_over_holders(Stream stream) {
  if (groups_.tensor == nullptr) return;
  const Event ready = stream.record();
  Communicator::Batch tensor(*groups_.tensor, ready);
  std::optional<Communicator::Batch> kv;
  if (groups_.kv != nullptr) kv.emplace(*groups_.kv, ready);
  for (int i = 0; i < shape_.storages(); ++i) {
    const StorageLayout& layout = shape_.layout(i);
    const std::int64_t begin = shape_.updated_begin(i);
    for (const SectionRange& range : section_ranges(layout, begin, begin + updated(i).numel())) {
      const auto at = static_cast<std::size_t>(range.section);
      const SectionSlice& slice = layout.slices[at];
      if (!has_partial_gradient(shape_.spec(i).sections[at], slice, shape_.place.sequence)) continue;
      const Tensor part = updated(i).flat(range.offset, range.flat_end - range.flat_begin);
      (slice.copies == groups_.tensor->size() ? tensor : kv.value()).all_reduce(part);
    }
  }
  stream.wait(tensor.submit());
  if (kv) stream.wait(kv->submit());
}

void GradStore::sum_over_stages(Stream stream) {
  if (groups_.tied == nullptr) return;
  Communicator::Batch batch(*groups_.tied, stream.record());
  for (int i = 0; i < shape_.storages(); ++i) {
    if (shape_.spec(i).tied != TiedCopy::none) batch.all_reduce(updated(i));
  }
  stream.wait(batch.submit());
}

}  // namespace llmtrain
