// SPDX-License-Identifier: Apache-2.0
/// Each channel has a communicator of its own, so that nothing waits behind a transfer of another boundary or direction.
#include "llmtrain/driver/boundaries.hpp"

#include "llmtrain/backend/workspace.hpp"
#include "llmtrain/parallel/groups.hpp"

namespace llmtrain {

Boundaries::Boundaries(const BoundaryCounts& counts, const ScheduleShape& shape, std::int64_t tokens,
                       std::int64_t hidden, DType dtype, DeviceKind kind, MemoryPlan& plan)
    : shape_(shape) {
  const auto request = [&](Use& use, int count, const char* name) {
    for (int i = 0; i < count; ++i) {
      use.slots.push_back(plan.request(Segment::activations, name, dtype, {tokens, hidden}));
    }
  };
  request(inputs_, counts.inputs, "stage input");
  request(outputs_, counts.outputs, "stage output");
  request(gradients_, counts.gradients, "stage gradient");
  if (shape.stages == 1) return;
  const std::int64_t staging = communicator_workspace(kind, 2, 0);  // nothing is reduced
  if (staging == 0) return;
  for (Channel* channel : {&outputs_out_, &inputs_in_, &gradients_out_, &gradients_in_}) {
    channel->workspace = plan.request(Segment::comm, "pipeline staging", DType::uint8, {staging});
  }
}

void Boundaries::bind(const Arena& arena, Device& device, const Topology& topology, int rank, const MpiComm& world) {
  for (Use* use : {&inputs_, &outputs_, &gradients_}) {
    for (const Slot slot : use->slots) use->tensors.push_back({arena[slot], {}});
  }
  for (const bool backward : {false, true}) {
    for (const int boundary : boundary_rounds(shape_.stage, shape_.stages, shape_.chunks > 1)) {
      std::vector<int> members{rank};
      if (boundary >= 0) members = boundary_members(topology, rank, boundary, backward);
      const Group group = make_group(backward ? "pp-backward" : "pp-forward", std::move(members), rank, world);
      if (group.size() == 1) continue;
      const bool sends = group.rank == 0;
      made_.push_back(backward ? (sends ? &Boundaries::gradients_out_ : &Boundaries::gradients_in_)
                               : (sends ? &Boundaries::outputs_out_ : &Boundaries::inputs_in_));
      Channel& channel = this->*made_.back();
      channel.communicator = device.make_communicator(group, channel.workspace ? arena[channel.workspace] : Tensor{});
    }
  }
}

void Boundaries::close() {
  for (Channel Boundaries::*const channel : made_) (this->*channel).communicator.reset();
  made_.clear();
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
