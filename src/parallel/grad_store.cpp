// SPDX-License-Identifier: Apache-2.0
/// Whole accumulators; the last commit of a step sends each storage off while backward goes on.
#include <algorithm>

#include "llmtrain/parallel/stores.hpp"

namespace llmtrain {

GradStore::GradStore(const StoreShape& shape, MemoryPlan& plan, std::int64_t bucket)
    : shape_(shape), bucket_(bucket), contributions_(shape.layouts.size(), 0) {
  for (int i = 0; i < shape.storages(); ++i) {
    const auto at = static_cast<std::size_t>(i);
    slots_.push_back(
        plan.request(Segment::grads, shape.table->storages[at].name, shape.stats, {shape.layouts[at].padded}));
  }
  for (const LeaseSpec& lease : shape.table->leases) {
    for (const int storage : lease.storages) ++contributions_[static_cast<std::size_t>(storage)];
  }
}

void GradStore::bind(const Arena& arena, Communicator* data) {
  data_ = data;
  for (const Slot slot : slots_) flat_.push_back(arena[slot]);
  left_.assign(flat_.size(), 0);
  touched_.assign(flat_.size(), false);
}

void GradStore::begin_step(std::int64_t micro_batches) {
  arrivals_.clear();
  touched_.assign(touched_.size(), false);
  for (std::size_t i = 0; i < left_.size(); ++i) left_[i] = contributions_[i] * micro_batches;
}

std::span<const Gradient> GradStore::open(int lease) {
  opened_.clear();
  for (const int storage : shape_.table->leases[static_cast<std::size_t>(lease)].storages) {
    const auto at = static_cast<std::size_t>(storage);
    opened_.push_back({shape_.shaped(storage, flat_[at]), touched_[at] ? Write::accumulate : Write::overwrite});
    touched_[at] = true;
  }
  return opened_;
}

void GradStore::commit(int lease, Stream stream) {
  Event ready;
  for (const int storage : shape_.table->leases[static_cast<std::size_t>(lease)].storages) {
    const auto at = static_cast<std::size_t>(storage);
    LLMTRAIN_CHECK(left_[at] > 0);
    if (--left_[at] > 0 || data_ == nullptr) continue;
    if (ready.device == nullptr) ready = stream.record();
    reduce(storage, ready);
  }
}

void GradStore::reduce(int storage, Event ready) {
  const Tensor flat = flat_[static_cast<std::size_t>(storage)];
  if (shape_.zero == 0) {
    for (std::int64_t begin = 0; begin < flat.numel(); begin += bucket_) {
      Communicator::Batch batch(*data_, ready);
      batch.all_reduce(flat.flat(begin, std::min(bucket_, flat.numel() - begin)));
      arrivals_.push_back(batch.submit());
    }
    return;
  }
  Communicator::Batch batch(*data_, ready);
  batch.reduce_scatter(shape_.own_chunk(storage, flat), flat);
  arrivals_.push_back(batch.submit());
}

void GradStore::finish(Stream stream) {
  for (const std::int64_t left : left_) LLMTRAIN_CHECK(left == 0);
  for (const Event arrival : arrivals_) stream.wait(arrival);
  arrivals_.clear();
}

}  // namespace llmtrain
