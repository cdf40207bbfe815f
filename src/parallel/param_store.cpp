// SPDX-License-Identifier: Apache-2.0
/// Whole weights; under ZeRO-1 each lease is gathered when it is first used after an update.
#include "llmtrain/parallel/stores.hpp"
#include "llmtrain/params/initialise.hpp"

namespace llmtrain {

ParamStore::ParamStore(const StoreShape& shape, MemoryPlan& plan) : shape_(shape) {
  for (int i = 0; i < shape.storages(); ++i) {
    const auto at = static_cast<std::size_t>(i);
    const std::string& name = shape.table->storages[at].name;
    slots_.push_back(plan.request(Segment::params, name, shape.data, {shape.layouts[at].padded}));
    if (shape.data != shape.stats) {
      const std::int64_t elements = shape.zero == 0 ? shape.layouts[at].padded : shape.layouts[at].chunk;
      master_slots_.push_back(plan.request(Segment::master, name, shape.stats, {elements}));
    }
  }
}

void ParamStore::bind(const Arena& arena, const StoreGroups& groups) {
  shard_ = groups.shard;
  for (const Slot slot : slots_) flat_.push_back(arena[slot]);
  for (const Slot slot : master_slots_) master_.push_back(arena[slot]);
  stale_.assign(flat_.size(), false);
  arrival_.assign(flat_.size(), Event{});
  for (const LeaseSpec& lease : shape_.table->leases) {
    std::vector<Tensor> tensors;
    for (const int storage : lease.storages) {
      tensors.push_back(shape_.shaped(storage, flat_[static_cast<std::size_t>(storage)]));
    }
    leases_.push_back(std::move(tensors));
  }
}

void ParamStore::gather(int lease) {
  if (lease >= static_cast<int>(leases_.size())) return;
  Communicator::Batch batch(*shard_, updated_);
  std::vector<std::size_t> sent;
  for (const int storage : shape_.table->leases[static_cast<std::size_t>(lease)].storages) {
    const auto at = static_cast<std::size_t>(storage);
    if (!stale_[at]) continue;
    batch.all_gather(flat_[at], shape_.own_chunk(storage, flat_[at]));
    stale_[at] = false;
    sent.push_back(at);
  }
  if (sent.empty()) return;
  const Event arrival = batch.submit();
  for (const std::size_t at : sent) arrival_[at] = arrival;
}

std::span<const Tensor> ParamStore::acquire(int lease, Stream stream) {
  if (shard_ != nullptr) {
    gather(lease);
    gather(lease + 1);
    for (const int storage : shape_.table->leases[static_cast<std::size_t>(lease)].storages) {
      stream.wait(arrival_[static_cast<std::size_t>(storage)]);
    }
  }
  return leases_[static_cast<std::size_t>(lease)];
}

void ParamStore::release(int, Stream) {}  // whole weights stay

void ParamStore::publish(Stream stream) {
  if (shard_ == nullptr || shape_.zero == 0) return;
  updated_ = stream.record();
  stale_.assign(stale_.size(), true);
}

Tensor ParamStore::master(int storage) const {
  const auto at = static_cast<std::size_t>(storage);
  return master_.empty() ? shape_.updated(storage, flat_[at]) : master_[at];
}

Tensor ParamStore::published(int storage) const {
  return master_.empty() ? Tensor{} : shape_.updated(storage, flat_[static_cast<std::size_t>(storage)]);
}

void ParamStore::initialise(Kernels& kernels, Stream stream, std::uint64_t seed) {
  for (int i = 0; i < shape_.storages(); ++i) {
    const auto at = static_cast<std::size_t>(i);
    llmtrain::initialise(kernels, stream, master(i), shape_.table->storages[at], shape_.layouts[at],
                         shape_.updated_begin(i), seed);
  }
  refresh(kernels, stream);
}

void ParamStore::refresh(Kernels& kernels, Stream stream) {
  if (!master_.empty()) {
    for (int i = 0; i < shape_.storages(); ++i) kernels.convert(stream, published(i), master(i));
  }
  publish(stream);
}

}  // namespace llmtrain
