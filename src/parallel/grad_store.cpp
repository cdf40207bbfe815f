// SPDX-License-Identifier: Apache-2.0
/// Accumulators by chunk or whole, and the reductions that leave for them while backward goes on.
#include <algorithm>
#include <limits>
#include <optional>

#include "bucket_batch.hpp"
#include "lease_buffer.hpp"
#include "llmtrain/backend/kernels.hpp"
#include "llmtrain/parallel/stores.hpp"

namespace llmtrain {

GradStore::GradStore(const StoreShape& shape, LeaseSequence opens, MemoryPlan& plan)
    : shape_(shape), opens_(std::move(opens)) {
  for (int i = 0; i < shape.storages(); ++i) {
    const std::int64_t elements = shape.keeps_whole_gradient(i) ? shape.layout(i).padded : shape.layout(i).chunk;
    slots_.push_back(plan.request(Segment::grads, shape.spec(i).name, shape.stats, {elements}));
  }
  // A lease's buffer is computed into while that of the lease before it is on its way.
  std::vector<BufferUse> uses;
  for (const int lease : opens_) {
    const auto use = static_cast<int>(uses.size());
    uses.push_back({lease_buffer_bytes(shape, lease, &StoreShape::keeps_whole_gradient, shape.stats), use, use + 1});
  }
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
  left_.assign(held_.size(), 0);
  for (const int lease : opens_) {
    for (const int storage : shape_.storages_of(lease)) ++left_[static_cast<std::size_t>(storage)];
  }
}

Tensor GradStore::own_chunk(int storage) const {
  const Tensor held = held_[static_cast<std::size_t>(storage)];
  return shape_.keeps_whole_gradient(storage) ? shape_.own_chunk(storage, held) : held;
}

Tensor GradStore::flat(int storage) const {
  LLMTRAIN_CHECK(shape_.keeps_whole_gradient(storage));
  return held_[static_cast<std::size_t>(storage)];
}

Tensor GradStore::buffer(int use, std::size_t storage_of_lease) const {
  const auto at = static_cast<std::size_t>(use);
  return in_lease_buffer(shape_, ring_, ring_plan_.offsets[at], opens_[at], storage_of_lease,
                         &StoreShape::keeps_whole_gradient, shape_.stats);
}

std::span<const Gradient> GradStore::open(int lease) {
  ++use_;
  LLMTRAIN_CHECK(use_ < static_cast<int>(opens_.size()) && opens_[static_cast<std::size_t>(use_)] == lease);
  settle(ring_plan_.before[static_cast<std::size_t>(use_)], stream_);
  opened_.clear();
  const std::vector<int>& storages = shape_.storages_of(lease);
  for (std::size_t i = 0; i < storages.size(); ++i) {
    const int storage = storages[i];
    if (shape_.keeps_whole_gradient(storage)) {
      const auto at = static_cast<std::size_t>(storage);
      const Write write = touched_[at] ? Write::accumulate : Write::overwrite;
      opened_.push_back({shape_.shaped(storage, flat(storage)), write});
      touched_[at] = true;
      continue;
    }
    const Tensor whole = buffer(use_, i);
    const std::int64_t used = shape_.layout(storage).numel(), padding = whole.numel() - used;
    if (padding > 0) stream_.device->kernels().fill(stream_, whole.flat(used, padding), 0.0);
    opened_.push_back({shape_.shaped(storage, whole), Write::overwrite});
  }
  return opened_;
}

void GradStore::commit(int lease, Stream stream) {
  LLMTRAIN_CHECK(use_ >= 0 && opens_[static_cast<std::size_t>(use_)] == lease);
  const std::vector<int>& storages = shape_.storages_of(lease);
  for (const int storage : storages) --left_[static_cast<std::size_t>(storage)];
  const auto leaves = [&](int storage) {
    return left_[static_cast<std::size_t>(storage)] == 0 || !shape_.keeps_whole_gradient(storage);
  };
  if (std::none_of(storages.begin(), storages.end(), leaves)) return;
  if (shape_.zero > 0) return reduce_chunks(lease, stream.record());
  if (groups_.data == nullptr) return;
  BucketBatch batch(*groups_.data, stream.record(), shape_.policy.bucket);
  for (const int storage : storages) {
    if (leaves(storage)) batch.all_reduce(flat(storage));
  }
  reduced_ = batch.submit();
}

void GradStore::reduce_chunks(int lease, Event ready) {
  BucketBatch batch(*groups_.shard, ready, shape_.policy.bucket);
  std::vector<int> complete;  // their sums go straight into the accumulator, so replicas can follow
  std::vector<Flight> flights;
  const std::vector<int>& storages = shape_.storages_of(lease);
  for (std::size_t i = 0; i < storages.size(); ++i) {
    const int storage = storages[i];
    const auto at = static_cast<std::size_t>(storage);
    const bool last = left_[at] == 0;
    if (shape_.keeps_whole_gradient(storage)) {
      if (!last) continue;
      batch.reduce_scatter(own_chunk(storage), flat(storage));
    } else {
      const Tensor whole = buffer(use_, i);
      const Tensor received = touched_[at] ? shape_.own_chunk(storage, whole) : Tensor{};
      batch.reduce_scatter(received ? received : own_chunk(storage), whole);
      flights.push_back({use_, storage, received, last});
      touched_[at] = true;
      if (received) continue;
    }
    if (last) complete.push_back(storage);
  }
  reduced_ = batch.submit();
  for (Flight& flight : flights) {
    flight.arrival = reduced_;
    flights_.push_back(flight);
  }
  sum_over_replicas(complete, reduced_);
}

void GradStore::sum_over_replicas(const std::vector<int>& storages, Event ready) {
  if (groups_.replicate == nullptr || storages.empty()) return;
  BucketBatch batch(*groups_.replicate, ready, shape_.policy.bucket);
  for (const int storage : storages) batch.all_reduce(own_chunk(storage));
  replicas_summed_ = batch.submit();
}

/// Adds what reductions of the opens up to `use` brought; their buffers are free on `stream`.
void GradStore::settle(int use, Stream stream) {
  while (!flights_.empty() && flights_.front().use <= use) {
    const Flight flight = flights_.front();
    flights_.pop_front();
    stream.wait(flight.arrival);
    if (!flight.received) continue;
    const Tensor sum = own_chunk(flight.storage);
    stream.device->kernels().add(stream, sum, sum, flight.received);
    if (flight.last) sum_over_replicas({flight.storage}, stream.record());
  }
}

void GradStore::finish(Stream stream) {
  for (const std::int64_t left : left_) LLMTRAIN_CHECK(left == 0);
  settle(std::numeric_limits<int>::max(), stream);
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
