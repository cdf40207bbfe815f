// SPDX-License-Identifier: Apache-2.0
/// Plan first, then one allocation a segment, then views for everybody.
#include "llmtrain/driver/parts.hpp"

#include <algorithm>

#include "llmtrain/backend/workspace.hpp"
#include "llmtrain/parallel/groups.hpp"

namespace llmtrain {

namespace {

StoreShape store_shape(const Deck& deck, const ParamTable& table, const Place& place) {
  const Coordinates at = place.topology.coordinates(place.rank);
  return {table,
          at.tp,
          place.topology.size(Axis::tp),
          deck.parallel.zero,
          at.shard,
          place.topology.size(Axis::shard),
          data_dtype(deck.precision.compute),
          stats_dtype(deck.precision.compute)};
}

std::int64_t micro_batches_of(const Deck& deck, const Place& place) {
  return deck.schedule.global_batch / (deck.schedule.micro_batch * place.topology.size(data_axes));
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
            {deck.schedule.micro_batch * deck.model.seq_len, slots_of(actions), Keep(deck.schedule)}, plan,
            static_cast<std::uint64_t>(deck.run.seed)),
      requests_(request(scratch_bytes)),
      arena(device, plan) {
  scratch =
      scratch_bytes == 0 ? std::make_unique<ScratchStack>() : std::make_unique<ScratchStack>(arena[requests_.scratch]);
  bind();
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
  if (const std::int64_t bytes = kernels_workspace(device.kind()); bytes > 0) {
    r.kernels_workspace = plan.request(Segment::scratch, "kernels", DType::uint8, {bytes});
  }
  if (scratch_bytes > 0) r.scratch = plan.request(Segment::scratch, "layers", DType::uint8, {scratch_bytes});
  std::int64_t largest_storage = 0;
  for (const StorageLayout& layout : shape.layouts) {
    largest_storage = std::max(largest_storage, layout.padded * size_of(shape.stats));
  }
  const auto staging = [&](const char* name, int size, std::int64_t largest) {
    const std::int64_t bytes = communicator_workspace(device.kind(), size, largest);
    return bytes == 0 ? Slot{} : plan.request(Segment::comm, name, DType::uint8, {bytes});
  };
  r.data_workspace = staging("data group staging", place.topology.size(data_axes), largest_storage);
  r.world_workspace = staging("world group staging", place.topology.ranks(), step_totals_size * size_of(DType::fp64));
  return r;
}

std::unique_ptr<Communicator> Parts::communicator(const std::string& name, std::vector<int> members, Slot workspace) {
  Group group = make_group(name, std::move(members), place.rank, place.world);
  if (group.size() == 1) return nullptr;
  return device.make_communicator(group, workspace ? arena[workspace] : Tensor{});
}

void Parts::bind() {
  if (requests_.kernels_workspace) kernels.use_workspace(arena[requests_.kernels_workspace]);
  data = communicator("data", place.topology.members(data_axes, place.rank), requests_.data_workspace);
  world = communicator("world", place.topology.members(world_axes, place.rank), requests_.world_workspace);
  params.bind(arena, data.get());
  grads.bind(arena, data.get());
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
