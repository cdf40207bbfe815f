// SPDX-License-Identifier: Apache-2.0
/// Plan first, then one allocation a segment, then views for everybody.
#include "llmtrain/driver/parts.hpp"

#include <algorithm>

#include "llmtrain/backend/workspace.hpp"
#include "llmtrain/parallel/groups.hpp"

namespace llmtrain {

namespace {

bool cuts_tokens(const Deck& deck) { return deck.parallel.sequence && deck.parallel.tensor > 1; }

StoreShape store_shape(const Deck& deck, const ParamTable& table, const Place& place) {
  const Coordinates at = place.topology.coordinates(place.rank);
  const StorePlace where{.tensor_rank = at.tp,
                         .tensor_size = place.topology.size(Axis::tp),
                         .sequence = cuts_tokens(deck),
                         .shards = place.topology.size(Axis::shard),
                         .chunk = {at.shard, at.replicate}};
  return {table, where, deck.parallel.zero, data_dtype(deck.precision.compute), stats_dtype(deck.precision.compute)};
}

std::int64_t micro_batches_of(const Deck& deck, const Place& place) {
  return deck.schedule.global_batch / (deck.schedule.micro_batch * place.topology.size(data_axes));
}

/// Tensor ranks with the same heads of K and V; 1 also if those are all of them, which then need no group of their own.
int kv_holders(const Deck& deck, const Topology& topology) {
  const auto kv_heads = static_cast<int>(deck.model.kv_heads);
  return kv_heads == 1 ? 1 : std::max(topology.size(Axis::tp) / kv_heads, 1);
}

std::vector<int> kv_members(const Deck& deck, const Place& place) {
  const std::vector<int> tensor = place.topology.members(Axis::tp, place.rank);
  const int holders = kv_holders(deck, place.topology);
  const auto first = tensor.begin() + place.topology.coordinates(place.rank).tp / holders * holders;
  return {first, first + holders};
}

}  // namespace

Parts::Parts(const Deck& resolved, const Place& where, Device& on, std::int64_t scratch_bytes)
    : deck(resolved),
      place(where),
      device(on),
      kernels(on.kernels()),
      stream(on.make_stream("compute")),
      table(make_param_table(deck.model, place.topology.size(Axis::tp))),
      shape(store_shape(deck, table, place)),
      actions(make_schedule(deck.schedule.kind, {place.topology.size(Axis::pp),
                                                 place.topology.coordinates(place.rank).pp, micro_batches()})),
      params(shape, plan),
      grads(shape, plan, deck.parallel.bucket),
      optimizer(deck.optimizer, shape, plan),
      stage(deck.model, place.topology.coordinates(place.rank).tp, place.topology.size(Axis::tp),
            deck.precision.compute,
            {deck.schedule.micro_batch * deck.model.seq_len, slots_of(actions), Keep(deck.schedule), cuts_tokens(deck)},
            plan, static_cast<std::uint64_t>(deck.run.seed)),
      requests_(request(scratch_bytes)),
      arena(device, plan) {
  scratch =
      scratch_bytes == 0 ? std::make_unique<ScratchStack>() : std::make_unique<ScratchStack>(arena[requests_.scratch]);
  bind();
  if (!device.executes() || !debug_checks()) return;
  hazards_ = std::make_unique<HazardChecker>([this](const void* address) { return arena.at(address); });
  device.set_observer(hazards_.get());
}

Parts::~Parts() {
  if (hazards_ != nullptr) device.set_observer(nullptr);
}

std::int64_t Parts::micro_batches() const { return micro_batches_of(deck, place); }

Parts::Requests Parts::request(std::int64_t scratch_bytes) {
  Requests r;
  const std::int64_t tokens = deck.schedule.micro_batch * deck.model.seq_len;
  for (int slot = 0; slot < slots_of(actions); ++slot) {
    const auto ids = [&](const char* name) { return plan.request(Segment::activations, name, DType::int32, {tokens}); };
    const Slot weights = plan.request(Segment::activations, "batch weights", DType::fp32, {tokens});
    r.batches.push_back(
        {ids("batch tokens"), ids("batch targets"), weights, ids("batch positions"), ids("batch order"), Slot{}});
    if (deck.model.dropout == 0) continue;
    r.batches.back().samples =
        plan.request(Segment::activations, "batch samples", DType::int64, {deck.schedule.micro_batch});
  }
  r.totals = plan.request(Segment::scratch, "step totals", DType::fp64, {step_totals_size});
  r.scalars = plan.request(Segment::scratch, "step scalars", DType::fp64, {step_scalars_size});
  if (scratch_bytes > 0) r.scratch = plan.request(Segment::scratch, "layers", DType::uint8, {scratch_bytes});
  std::int64_t largest_storage = 0;
  for (const StorageLayout& layout : shape.layouts) {
    largest_storage = std::max(largest_storage, layout.padded * size_of(shape.stats));
  }
  const auto staging = [&](const char* name, int size, std::int64_t largest) {
    const std::int64_t bytes = communicator_workspace(device.kind(), size, largest);
    return bytes == 0 ? Slot{} : plan.request(Segment::comm, name, DType::uint8, {bytes});
  };
  const Topology& topology = place.topology;
  if (shape.zero == 0) {
    r.data_workspace = staging("data group staging", topology.size(data_axes), largest_storage);
  } else {
    r.shard_workspace = staging("shard group staging", topology.size(Axis::shard), largest_storage);
    r.replicate_workspace = staging("replicate group staging", topology.size(Axis::replicate), largest_storage);
  }
  const std::int64_t stream_bytes = tokens * deck.model.hidden * size_of(shape.data);
  r.tensor_workspace =
      staging("tensor group staging", topology.size(Axis::tp), std::max(stream_bytes, largest_storage));
  r.kv_workspace = staging("kv group staging", kv_holders(deck, topology), largest_storage);
  r.world_workspace = staging("world group staging", place.topology.ranks(), step_totals_size * size_of(DType::fp64));
  return r;
}

std::unique_ptr<Communicator> Parts::communicator(const std::string& name, std::vector<int> members, Slot workspace) {
  Group group = make_group(name, std::move(members), place.rank, place.world);
  if (group.size() == 1) return nullptr;
  return device.make_communicator(group, workspace ? arena[workspace] : Tensor{});
}

TensorGroup Parts::tensor_group() const {
  return {tensor.get(), place.topology.coordinates(place.rank).tp, place.topology.size(Axis::tp), cuts_tokens(deck)};
}

void Parts::bind() {
  const auto along = [&](AxisSet axes) { return place.topology.members(axes, place.rank); };
  if (shape.zero == 0) {
    data = communicator("data", along(data_axes), requests_.data_workspace);
  } else {
    shard = communicator("shard", along(Axis::shard), requests_.shard_workspace);
    replicate = communicator("replicate", along(Axis::replicate), requests_.replicate_workspace);
  }
  tensor = communicator("tensor", along(Axis::tp), requests_.tensor_workspace);
  kv = communicator("kv", kv_members(deck, place), requests_.kv_workspace);
  world = communicator("world", along(world_axes), requests_.world_workspace);
  const StoreGroups groups{
      .data = data.get(), .shard = shard.get(), .replicate = replicate.get(), .tensor = tensor.get(), .kv = kv.get()};
  params.bind(arena, groups);
  grads.bind(arena, groups);
  optimizer.bind(arena);
  stage.bind(arena, stream);
  totals = arena[requests_.totals];
  scalars = arena[requests_.scalars];
  for (const BatchSlots& slots : requests_.batches) {
    Batch batch;
    batch.batch = deck.schedule.micro_batch;
    batch.sequence = deck.model.seq_len;
    batch.tokens = arena[slots.tokens];
    batch.targets = arena[slots.targets];
    batch.weights = arena[slots.weights];
    batch.positions = arena[slots.positions];
    batch.order = arena[slots.order];
    if (slots.samples) batch.samples = arena[slots.samples];
    batches.push_back(batch);
  }
}

}  // namespace llmtrain
