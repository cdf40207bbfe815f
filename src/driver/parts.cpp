// SPDX-License-Identifier: Apache-2.0
/// Plan first, then one allocation a segment, then views for everybody.
#include "llmtrain/driver/parts.hpp"

#include <algorithm>

#include "llmtrain/backend/workspace.hpp"
#include "llmtrain/driver/micro_batches.hpp"
#include "llmtrain/driver/state.hpp"
#include "llmtrain/parallel/groups.hpp"

namespace llmtrain {

StoreTypes store_types(const PrecisionConfig& precision) {
  const DType stats = stats_dtype(precision.compute);
  const auto stored = [stats](Storage16 type) { return type == Storage16::bf16 ? DType::bf16 : stats; };
  return {.weights = data_dtype(precision.compute),
          .masters = stats,
          .gradients = stored(precision.gradients),
          .reduce = stored(precision.reduce),
          .moments = stored(precision.moments)};
}

namespace {

/// Of a micro-batch.
std::int64_t tokens_of(const Deck& deck) { return deck.schedule.micro_batch * deck.model.seq_len; }

/// This rank's place in its tensor group, without the communicator.
TensorGroup tensor_place(const Deck& deck, const Place& place) {
  const int size = place.topology.size(Axis::tp);
  return {nullptr, place.topology.coordinates(place.rank).tp, size, deck.parallel.sequence && size > 1};
}

StoreShape store_shape(const Deck& deck, const ParamTable& table, const Place& place) {
  const Coordinates at = place.topology.coordinates(place.rank);
  const TensorGroup tensor = tensor_place(deck, place);
  const StorePlace where{.tensor_rank = tensor.rank,
                         .tensor_size = tensor.size,
                         .sequence = tensor.sequence,
                         .shards = place.topology.size(Axis::shard),
                         .one_node = !place.topology.leave_nodes(Axis::shard),
                         .replicas = place.topology.size(Axis::replicate),
                         .chunk = {at.shard, at.replicate}};
  return {table, where, deck.parallel, store_types(deck.precision)};
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

ScheduleShape pipeline_of(const Deck& deck, const Place& place) {
  return {place.topology.size(Axis::pp), place.topology.coordinates(place.rank).pp,
          micro_batches_of(deck, place.topology), deck.schedule.chunks};
}

std::vector<PieceLeases> pieces_of(const Deck& deck, const ScheduleShape& pipeline) {
  const std::vector<ModelPiece> all = cut_model(deck.model.layers, deck.parallel, pipeline.pieces());
  std::vector<PieceLeases> mine;
  int lease = 0;
  for (int chunk = 0; chunk < pipeline.chunks; ++chunk) {
    mine.push_back({all[static_cast<std::size_t>(pipeline.piece(chunk))], lease});
    lease += mine.back().piece.leases();
  }
  return mine;
}

void append(LeaseSequence& to, const LeaseSequence& leases) { to.insert(to.end(), leases.begin(), leases.end()); }

PassLeases step_leases_of(const std::vector<Action>& actions, const std::vector<PieceLeases>& pieces) {
  PassLeases all;
  for (const Action& action : actions) {
    if (!action.computes()) continue;
    const PieceLeases& piece = pieces[static_cast<std::size_t>(action.chunk)];
    const PassLeases one = action.kind == Action::Kind::forward ? piece.forward() : piece.backward();
    append(all.weights, one.weights);
    append(all.gradients, one.gradients);
  }
  return all;
}

/// All that is announced: training, evaluation piece by piece, and one lease alone by those who look at weights.
std::vector<LeaseSequence> passes_of(const PassLeases& step, const std::vector<PieceLeases>& pieces) {
  std::vector<LeaseSequence> passes{step.weights};
  for (const PieceLeases& piece : pieces) passes.push_back(piece.forward().weights);
  for (const int lease : every_lease(pieces)) passes.push_back({lease});
  return passes;
}

/// Of training and of evaluation.
BoundaryCounts boundary_counts(const std::vector<Action>& training, const Deck& deck, const ScheduleShape& pipeline) {
  ScheduleShape evaluation = pipeline;
  evaluation.micro_batches *= deck.data.eval_batches;
  const BoundaryCounts a = boundaries_of(training), b = boundaries_of(make_forward_schedule(evaluation));
  return {std::max(a.inputs, b.inputs), std::max(a.outputs, b.outputs), std::max(a.gradients, b.gradients)};
}

}  // namespace

Parts::Parts(const Deck& resolved, const Place& where, Device& on, std::int64_t scratch_bytes)
    : deck(resolved),
      place(where),
      device(on),
      kernels(on.kernels()),
      stream(on.make_stream("compute")),
      pipeline(pipeline_of(deck, place)),
      pieces(pieces_of(deck, pipeline)),
      table(table_of(make_param_table(deck.model, place.topology.size(Axis::tp)), pieces, deck.model.layers)),
      shape(store_shape(deck, table, place)),
      actions(make_schedule(deck.schedule.kind, pipeline)),
      step_leases(step_leases_of(actions, pieces)),
      params(shape, passes_of(step_leases, pieces), plan),
      fp8_weights(shape, deck.precision.linear == LinearProducts::fp8, deck.precision.keep_fp8, plan),
      grads(shape, step_leases.gradients, plan),
      optimizer(deck.optimizer, shape, plan),
      rope(deck.model, shape.types.masters, plan),
      stages(make_stages()),
      boundaries(boundary_counts(actions, deck, pipeline), pipeline, place.topology, place.rank,
                 {tensor_place(deck, place).rows(tokens_of(deck)), deck.model.hidden, shape.types.weights},
                 device.kind(), plan),
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
  boundaries.close();
  if (hazards_ != nullptr) device.set_observer(nullptr);
}

std::int64_t Parts::micro_batches() const { return micro_batches_of(deck, place.topology); }

int Parts::tied_storage() const {
  const auto tied = [](const StorageSpec& storage) { return storage.tied != TiedCopy::none; };
  const auto found = std::find_if(table.storages.begin(), table.storages.end(), tied);
  return found == table.storages.end() ? -1 : static_cast<int>(found - table.storages.begin());
}

std::deque<Stage> Parts::make_stages() {
  std::deque<Stage> all;
  const TensorGroup at = tensor_place(deck, place);
  for (int chunk = 0; chunk < pipeline.chunks; ++chunk) {
    const StageSizes sizes{tokens_of(deck), slots_of(actions, chunk), Keep(deck.schedule, deck.precision.linear),
                           at.sequence};
    all.emplace_back(deck.model, pieces[static_cast<std::size_t>(chunk)], at.rank, at.size, deck.precision.compute,
                     sizes, rope, plan, static_cast<std::uint64_t>(deck.run.seed));
  }
  return all;
}

Parts::BatchSlots Parts::request_batch() {
  const std::int64_t tokens = tokens_of(deck);
  const auto ids = [&](const char* name) { return plan.request(Segment::activations, name, DType::int32, {tokens}); };
  BatchSlots slots;
  slots.weights = plan.request(Segment::activations, "batch weights", DType::fp32, {tokens});
  slots.tokens = ids("batch tokens");
  slots.targets = ids("batch targets");
  slots.positions = ids("batch positions");
  slots.order = ids("batch order");
  if (deck.data.document_mask) slots.starts = ids("batch document starts");
  if (deck.model.dropout != 0) {
    slots.samples = plan.request(Segment::activations, "batch samples", DType::int64, {deck.schedule.micro_batch});
  }
  return slots;
}

Parts::Requests Parts::request(std::int64_t scratch_bytes) {
  Requests r;
  for (int chunk = 0; chunk < pipeline.chunks; ++chunk) {
    r.batches.emplace_back();
    for (int slot = 0; slot < slots_of(actions, chunk); ++slot) r.batches.back().push_back(request_batch());
  }
  r.totals = plan.request(Segment::scratch, "step totals", DType::fp64, {step_totals_size});
  r.scalars = plan.request(Segment::scratch, "step scalars", DType::fp64, {step_scalars_size});
  if (const std::int64_t bytes = kernels_workspace(device.kind()); bytes > 0) {
    r.kernels_workspace = plan.request(Segment::scratch, "kernels", DType::uint8, {bytes});
  }
  if (scratch_bytes > 0) r.scratch = plan.request(Segment::scratch, "layers", DType::uint8, {scratch_bytes});
  const StoreTypes& types = shape.types;
  const std::int64_t element =
      std::max({size_of(types.weights), size_of(types.gradients), size_of(types.reduce)});  // of what travels
  std::int64_t largest_storage = 0;
  for (const StorageLayout& layout : shape.layouts) {
    largest_storage = std::max(largest_storage, layout.padded * element);
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
  const std::int64_t stream_bytes = tokens_of(deck) * deck.model.hidden * size_of(shape.types.weights);
  r.tensor_workspace =
      staging("tensor group staging", topology.size(Axis::tp), std::max(stream_bytes, largest_storage));
  r.kv_workspace = staging("kv group staging", kv_holders(deck, topology), largest_storage);
  if (const int tied = tied_storage(); tied >= 0) {
    r.tied_workspace = staging("tied group staging", 2, shape.layout(tied).padded * element);
  }
  r.world_workspace = staging("world group staging", place.topology.ranks(), step_totals_size * size_of(DType::fp64));
  if (deck.checkpoint.async && deck.checkpoint.every > 0) {
    const std::int64_t bytes = std::max<std::int64_t>(owned_state_bytes(shape), 1);
    r.checkpoint_copy = plan.request(Segment::host, "checkpoint copy", DType::uint8, {bytes});
  }
  return r;
}

std::unique_ptr<Communicator> Parts::communicator(const std::string& name, std::vector<int> members, Slot workspace) {
  Group group = make_group(name, std::move(members), place.rank, place.world);
  if (group.size() == 1) return nullptr;
  return device.make_communicator(group, workspace ? arena[workspace] : Tensor{});
}

Tensor Parts::largest_free() const {
  Tensor largest = requests_.scratch ? arena[requests_.scratch] : Tensor{};
  for (const Segment segment :
       {Segment::activations, Segment::master, Segment::moments, Segment::grads, Segment::comm}) {
    const Tensor whole = arena.whole(segment);
    if (!largest || whole.bytes() > largest.bytes()) largest = whole;
  }
  return largest;
}

TensorGroup Parts::tensor_group() const {
  TensorGroup group = tensor_place(deck, place);
  group.communicator = tensor.get();
  return group;
}

void Parts::bind() {
  if (requests_.kernels_workspace) kernels.use_workspace(arena[requests_.kernels_workspace]);
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
  if (deck.model.tied && pipeline.stages > 1) {
    tied = communicator("tied", tied_members(place.topology, place.rank), requests_.tied_workspace);
  }
  const StoreGroups groups{.data = data.get(),
                           .shard = shard.get(),
                           .replicate = replicate.get(),
                           .tensor = tensor.get(),
                           .kv = kv.get(),
                           .tied = tied.get()};
  params.bind(arena, groups);
  fp8_weights.bind(arena, params);
  grads.bind(arena, groups);
  optimizer.bind(arena);
  rope.bind(arena, stream);
  for (Stage& stage : stages) stage.bind(arena);
  boundaries.bind(arena, device, place.world);
  totals = arena[requests_.totals];
  scalars = arena[requests_.scalars];
  if (requests_.checkpoint_copy) checkpoint_copy = arena[requests_.checkpoint_copy];
  for (const std::vector<BatchSlots>& chunk : requests_.batches) {
    batches.emplace_back();
    for (const BatchSlots& slots : chunk) batches.back().push_back(bind_batch(slots));
  }
}

Batch Parts::bind_batch(const BatchSlots& slots) const {
  Batch batch;
  batch.batch = deck.schedule.micro_batch;
  batch.sequence = deck.model.seq_len;
  batch.tokens = arena[slots.tokens];
  batch.targets = arena[slots.targets];
  batch.weights = arena[slots.weights];
  batch.positions = arena[slots.positions];
  batch.order = arena[slots.order];
  if (slots.starts) {
    batch.starts = arena[slots.starts];
    batch.documents = batch.batch;  // until it is loaded
  }
  if (slots.samples) batch.samples = arena[slots.samples];
  return batch;
}

}  // namespace llmtrain
