// SPDX-License-Identifier: Apache-2.0
/// Each channel has a communicator of its own, so that nothing waits behind a transfer of another boundary or direction.
#include "llmtrain/driver/boundaries.hpp"

#include "llmtrain/backend/workspace.hpp"
#include "llmtrain/parallel/groups.hpp"

namespace llmtrain {

Boundaries::Boundaries(const BoundaryCounts& counts, const ScheduleShape& shape, const Topology& topology, int rank,
                       const BoundaryTensor& tensor, DeviceKind kind, MemoryPlan& plan)
    : rank_(rank) {
  const auto request = [&](Use& use, int count, const char* name) {
    for (int i = 0; i < count; ++i) {
      use.slots.push_back(plan.request(Segment::activations, name, tensor.dtype, {tensor.tokens, tensor.hidden}));
    }
  };
  request(inputs_, counts.inputs, "stage input");
  request(outputs_, counts.outputs, "stage output");
  request(gradients_, counts.gradients, "stage gradient");
  for (const bool backward : {false, true}) {
    for (const int boundary : boundary_rounds(shape.stage, shape.stages, shape.chunks > 1)) {
      rounds_.push_back({backward, {rank}});
      Round& round = rounds_.back();
      if (boundary < 0) continue;
      round.members = boundary_members(topology, rank, boundary, backward);
      const bool sends = round.members[0] == rank;
      round.channel = backward ? (sends ? &Boundaries::gradients_out_ : &Boundaries::gradients_in_)
                               : (sends ? &Boundaries::outputs_out_ : &Boundaries::inputs_in_);
      const bool on_one_node = topology.node(round.members[0]) == topology.node(round.members[1]);
      const std::int64_t message = tensor.tokens * tensor.hidden * size_of(tensor.dtype);
      const std::int64_t staging = channel_workspace(kind, message, !sends, on_one_node);
      if (staging == 0) continue;
      (this->*round.channel).workspace = plan.request(Segment::comm, "pipeline staging", DType::uint8, {staging});
    }
  }
}

void Boundaries::bind(const Arena& arena, Device& device, const MpiComm& world) {
  for (Use* use : {&inputs_, &outputs_, &gradients_}) {
    for (const Slot slot : use->slots) use->tensors.push_back({arena[slot], {}});
  }
  for (const Round& round : rounds_) {
    const Group group = make_group(round.backward ? "pp-backward" : "pp-forward", round.members, rank_, world);
    if (round.channel == nullptr) continue;
    Channel& channel = this->*round.channel;
    channel.communicator = device.make_communicator(group, channel.workspace ? arena[channel.workspace] : Tensor{});
  }
}

void Boundaries::close() {
  for (const Round& round : rounds_) {
    if (round.channel != nullptr) (this->*round.channel).communicator.reset();
  }
}

void Boundaries::start(const Action& action, Stream stream) {
  const auto submit = [&](Channel& channel, Use& use, int number, bool sends) {
    Boundary& end = boundary(use, number);
    stream.wait(end.transferred);
    Communicator::Batch batch(*channel.communicator, stream.record());
    if (sends) {
      batch.send(end.tensor, 1);
    } else {
      batch.receive(end.tensor, 0);
    }
    end.transferred = batch.submit();
  };
  switch (action.kind) {
    case Action::Kind::receive_input: return submit(inputs_in_, inputs_, action.input, false);
    case Action::Kind::send_output: return submit(outputs_out_, outputs_, action.output, true);
    case Action::Kind::receive_gradient: return submit(gradients_in_, gradients_, action.gradient, false);
    case Action::Kind::send_gradient: return submit(gradients_out_, gradients_, action.gradient, true);
    case Action::Kind::forward:
    case Action::Kind::backward: break;
  }
  LLMTRAIN_CHECK(false);
}

Tensor Boundaries::ready(Use& use, int number, Stream stream) {
  if (number < 0) return {};
  Boundary& end = boundary(use, number);
  stream.wait(end.transferred);
  end.transferred = {};
  return end.tensor;
}

StageEnds Boundaries::ends(const Action& work, Stream stream) {
  return {ready(inputs_, work.input, stream), ready(outputs_, work.output, stream),
          ready(gradients_, work.gradient, stream)};
}

}  // namespace llmtrain
