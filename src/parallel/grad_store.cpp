// SPDX-License-Identifier: Apache-2.0
/// Whole accumulators; the last commit of a step sends each storage off while backward goes on.
#include <algorithm>
#include <optional>

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

void GradStore::bind(const Arena& arena, const StoreGroups& groups) {
  groups_ = groups;
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
    if (--left_[at] > 0) continue;
    if (ready.device == nullptr) ready = stream.record();
    reduce(storage, ready);
  }
}

void GradStore::reduce(int storage, Event ready) {
  const Tensor flat = flat_[static_cast<std::size_t>(storage)];
  if (shape_.zero == 0) {
    if (groups_.data == nullptr) return;
    for (std::int64_t begin = 0; begin < flat.numel(); begin += bucket_) {
      Communicator::Batch batch(*groups_.data, ready);
      batch.all_reduce(flat.flat(begin, std::min(bucket_, flat.numel() - begin)));
      arrivals_.push_back(batch.submit());
    }
    return;
  }
  Communicator::Batch batch(*groups_.shard, ready);
  batch.reduce_scatter(own_chunk(storage), flat);
  arrivals_.push_back(batch.submit());
  if (groups_.replicate == nullptr) return;
  Communicator::Batch replicas(*groups_.replicate, arrivals_.back());
  replicas.all_reduce(own_chunk(storage));
  arrivals_.push_back(replicas.submit());
}

void GradStore::finish(Stream stream) {
  for (const std::int64_t left : left_) LLMTRAIN_CHECK(left == 0);
  for (const Event arrival : arrivals_) stream.wait(arrival);
  arrivals_.clear();
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
