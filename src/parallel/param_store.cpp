// SPDX-License-Identifier: Apache-2.0
/// Weights by chunk or whole; what is missing is gathered along the announced sequence of leases.
#include <algorithm>

#include "bucket_batch.hpp"
#include "lease_buffer.hpp"
#include "lease_notes.hpp"
#include "llmtrain/parallel/stores.hpp"
#include "llmtrain/params/initialise.hpp"

namespace llmtrain {

ParamStore::ParamStore(const StoreShape& shape, std::vector<LeaseSequence> passes, MemoryPlan& plan) : shape_(shape) {
  for (int i = 0; i < shape.storages(); ++i) {
    const std::string& name = shape.spec(i).name;
    const StorageLayout& layout = shape.layout(i);
    const std::int64_t elements = shape.keeps_whole_weights(i) ? layout.padded : layout.chunk;
    slots_.push_back(plan.request(Segment::params, name, shape.types.weights, {elements}));
    if (shape.types.weights == shape.types.masters) continue;
    master_slots_.push_back(plan.request(Segment::master, name, shape.types.masters, {shape.updated_elements(i)}));
  }
  std::int64_t ring_bytes = 0;
  for (LeaseSequence& leases : passes) {
    passes_.push_back(plan_pass(std::move(leases)));
    ring_bytes = std::max(ring_bytes, passes_.back().ring.bytes);
  }
  if (ring_bytes > 0) ring_slot_ = plan.request(Segment::comm, "gathered weights", DType::uint8, {ring_bytes});
}

void ParamStore::bind(const Arena& arena, const StoreGroups& groups) {
  shard_ = groups.shard;
  for (const Slot slot : slots_) held_.push_back(arena[slot]);
  for (const Slot slot : master_slots_) master_.push_back(arena[slot]);
  if (ring_slot_) ring_ = arena[ring_slot_];
  stale_.assign(held_.size(), false);
}

/// Elements that a use of the lease may have to gather: under ZeRO-3 at every use, else at the first after an update.
std::int64_t ParamStore::gathered_elements(int lease) const {
  std::int64_t elements = 0;
  for (const int storage : shape_.storages_of(lease)) {
    if (shape_.zero < 3 || !shape_.keeps_whole_weights(storage)) elements += shape_.layout(storage).padded;
  }
  return elements;
}

ParamStore::Pass ParamStore::plan_pass(LeaseSequence leases) const {
  Pass pass;
  for (const int lease : leases) {
    if (pass.stays.empty() || pass.stays.back().lease != lease) pass.stays.push_back({lease, 0, 0});
    ++pass.stays.back().uses;
  }
  const ParallelConfig& policy = shape_.policy;
  const auto count = static_cast<int>(pass.stays.size());
  const auto elements = [&](int stay) { return gathered_elements(pass.stays[static_cast<std::size_t>(stay)].lease); };
  std::vector<BufferUse> uses;
  std::int64_t ahead = 0;  // elements of the stays after the one in use that are asked for
  for (int now = 0; now < count; ++now) {
    const auto asked = [&] { return static_cast<int>(uses.size()); };
    const auto ask = [&] {
      const int lease = pass.stays[uses.size()].lease;
      const auto comes = [&](int storage) { return !shape_.keeps_whole_weights(storage); };
      uses.push_back({lease_buffer_bytes(shape_, lease, shape_.types.weights, comes), now, asked()});
    };
    if (asked() == now) {
      ask();
    } else {
      ahead -= elements(now);
    }
    while (asked() < count && policy.prefetch > 0) {
      const std::int64_t more = elements(asked());
      if (asked() > now + 1 && ahead + more > policy.prefetch) break;
      if (shape_.zero == 3 && elements(now) + ahead + more > policy.max_live) break;
      ahead += more;
      ask();
    }
  }
  pass.ring = plan_ring(uses);
  int begun = 0;
  for (int now = 0; now < count; ++now) {
    while (begun < count && pass.ring.begins[static_cast<std::size_t>(begun)] <= now) ++begun;
    pass.stays[static_cast<std::size_t>(now)].gathered = begun - 1;
  }
  pass.leases = std::move(leases);
  return pass;
}

void ParamStore::begin_pass(const LeaseSequence& leases, Stream stream) {
  if (shard_ == nullptr) return;
  LLMTRAIN_CHECK(uses_left_ == 0 && (pass_ == nullptr || gathered_ == stay_ + 1));  // the last pass came to its end
  const auto pass = std::find_if(passes_.begin(), passes_.end(), [&](const Pass& p) { return p.leases == leases; });
  LLMTRAIN_CHECK(pass != passes_.end() && !pass->stays.empty());
  pass_ = &*pass;
  stay_ = -1;
  gathered_ = 0;
  begun_ = stream.record();
  arrival_.assign(pass_->stays.size(), Event{});
  released_.assign(pass_->stays.size(), Event{});
  gather_ahead(0);
}

void ParamStore::gather_ahead(int stay) {
  if (stay == static_cast<int>(pass_->stays.size())) return;
  const int until = pass_->stays[static_cast<std::size_t>(stay)].gathered;
  while (gathered_ <= until) gather(gathered_++);
}

Tensor ParamStore::weights(int stay, std::size_t storage_of_lease) const {
  const auto at = static_cast<std::size_t>(stay);
  const int lease = pass_->stays[at].lease, storage = shape_.storages_of(lease)[storage_of_lease];
  if (shape_.keeps_whole_weights(storage)) return whole(storage);
  return in_lease_buffer(shape_, ring_, pass_->ring.offsets[at], lease, storage_of_lease, shape_.types.weights,
                         [&](int other) { return !shape_.keeps_whole_weights(other); });
}

void ParamStore::gather(int stay) {
  const auto at = static_cast<std::size_t>(stay);
  const int before = pass_->ring.before[at];
  const Event ready = before < 0 ? begun_ : released_[static_cast<std::size_t>(before)];
  BucketBatch batch(*shard_, ready, shape_.policy.bucket);
  const std::vector<int>& storages = shape_.storages_of(pass_->stays[at].lease);
  for (std::size_t i = 0; i < storages.size(); ++i) {
    const auto storage = static_cast<std::size_t>(storages[i]);
    if (shape_.keeps_whole_weights(storages[i]) && !stale_[storage]) continue;
    batch.all_gather(weights(stay, i), own_chunk(storages[i]));
    stale_[storage] = false;
  }
  arrival_[at] = batch.submit();
}

std::span<const Tensor> ParamStore::acquire(int lease, Stream stream) {
  const std::vector<int>& storages = shape_.storages_of(lease);
  acquired_.clear();
  if (shard_ == nullptr) {
    for (const int storage : storages) acquired_.push_back(shape_.shaped(storage, whole(storage)));
    note_lease(stream, LeaseNote::Kind::begins, shape_.lease_name(lease), acquired_);
    return acquired_;
  }
  LLMTRAIN_CHECK(pass_ != nullptr);
  if (uses_left_ == 0) {
    ++stay_;
    LLMTRAIN_CHECK(stay_ < static_cast<int>(pass_->stays.size()));
    uses_left_ = pass_->stays[static_cast<std::size_t>(stay_)].uses;
    stream.wait(arrival_[static_cast<std::size_t>(stay_)]);
  }
  LLMTRAIN_CHECK(lease == pass_->stays[static_cast<std::size_t>(stay_)].lease);
  for (std::size_t i = 0; i < storages.size(); ++i) {
    acquired_.push_back(shape_.shaped(storages[i], weights(stay_, i)));
  }
  note_lease(stream, LeaseNote::Kind::begins, shape_.lease_name(lease), acquired_);
  return acquired_;
}

void ParamStore::release(int lease, Stream stream) {
  note_lease(stream, LeaseNote::Kind::ends, shape_.lease_name(lease), acquired_);
  if (shard_ == nullptr) return;
  LLMTRAIN_CHECK(uses_left_ > 0);
  if (--uses_left_ > 0) return;
  if (pass_->ring.bytes > 0) released_[static_cast<std::size_t>(stay_)] = stream.record();
  gather_ahead(stay_ + 1);
}

void ParamStore::publish() {
  ++updates_;
  if (shard_ != nullptr) stale_.assign(stale_.size(), true);
}

Tensor ParamStore::master(int storage) const {
  if (!master_.empty()) return master_[static_cast<std::size_t>(storage)];
  return shape_.zero == 0 ? whole(storage) : own_chunk(storage);
}

Tensor ParamStore::published(int storage) const {
  if (master_.empty()) return {};
  return shape_.zero == 0 ? whole(storage) : own_chunk(storage);
}

Tensor ParamStore::whole(int storage) const {
  LLMTRAIN_CHECK(shape_.keeps_whole_weights(storage));
  return held_[static_cast<std::size_t>(storage)];
}

Tensor ParamStore::own_chunk(int storage) const {
  const Tensor held = held_[static_cast<std::size_t>(storage)];
  return shape_.keeps_whole_weights(storage) ? shape_.own_chunk(storage, held) : held;
}

void ParamStore::initialise(Kernels& kernels, Stream stream, std::uint64_t seed) {
  note_lease(stream, LeaseNote::Kind::all_over);
  for (int i = 0; i < shape_.storages(); ++i) {
    llmtrain::initialise(kernels, stream, master(i), shape_.spec(i), shape_.layout(i), shape_.updated_begin(i), seed);
  }
  refresh(kernels, stream);
}

void ParamStore::refresh(Kernels& kernels, Stream stream) {
  note_lease(stream, LeaseNote::Kind::all_over);
  if (!master_.empty()) {
    for (int i = 0; i < shape_.storages(); ++i) kernels.convert(stream, published(i), master(i));
  }
  publish();
}

}  // namespace llmtrain
