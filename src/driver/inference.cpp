// SPDX-License-Identifier: Apache-2.0
/// The same Stage as in training, without gradients, moments or communicators.
#include "llmtrain/driver/inference.hpp"

#include <algorithm>
#include <numeric>

#include "llmtrain/backend/workspace.hpp"
#include "llmtrain/driver/parts.hpp"
#include "llmtrain/model/shapes.hpp"

namespace llmtrain {

Inference::Inference(const Deck& deck, Device& device, std::int64_t scratch_bytes)
    : deck_(deck),
      device_(device),
      stream_(device.make_stream("compute")),
      table_(make_param_table(deck.model, 1)),
      shape_(table_, StorePlace{}, deck.parallel, store_types(deck.precision)),
      params_(shape_, {}, plan_),
      rope_(deck.model, stats_dtype(deck.precision.compute), plan_),
      stage_(deck.model, {whole_model(deck.model), 0}, 0, 1, deck.precision.compute, {deck.model.seq_len, 1, {}}, rope_,
             plan_),
      input_slot_(plan_.request(Segment::activations, "stage input", data_dtype(deck.precision.compute),
                                {deck.model.seq_len, deck.model.hidden})),
      tokens_slot_(plan_.request(Segment::activations, "tokens", DType::int32, {deck.model.seq_len})),
      positions_slot_(plan_.request(Segment::activations, "positions", DType::int32, {deck.model.seq_len})),
      logits_slot_(plan_.request(Segment::activations, "logits", data_dtype(deck.precision.compute),
                                 {deck.model.seq_len, stage_.shapes().vocab})),
      kernels_slot_(kernels_workspace(device.kind()) == 0
                        ? Slot{}
                        : plan_.request(Segment::scratch, "kernels", DType::uint8, {kernels_workspace(device.kind())})),
      scratch_slot_(scratch_bytes == 0 ? Slot{}
                                       : plan_.request(Segment::scratch, "layers", DType::uint8, {scratch_bytes})),
      arena_(device, plan_),
      scratch_(scratch_bytes == 0 ? std::make_unique<ScratchStack>()
                                  : std::make_unique<ScratchStack>(arena_[scratch_slot_])) {
  if (kernels_slot_) device_.kernels().use_workspace(arena_[kernels_slot_]);
  params_.bind(arena_, {});
  rope_.bind(arena_, stream_);
  stage_.bind(arena_);
}

void Inference::load(const Checkpoint& checkpoint) {
  std::vector<Piece> pieces;
  std::vector<std::vector<std::byte>> host;
  std::vector<Tensor> tensors;
  for (int i = 0; i < shape_.storages(); ++i) {
    const auto at = static_cast<std::size_t>(i);
    const Tensor master = params_.master(i);
    for (const SectionRange& range : section_ranges(shape_.layouts[at], 0, master.numel())) {
      const Section& section = table_.storages[at].sections[static_cast<std::size_t>(range.section)];
      const Tensor tensor = master.flat(range.offset, range.flat_end - range.flat_begin);
      void* data = host.emplace_back(static_cast<std::size_t>(tensor.bytes())).data();
      tensors.push_back(tensor);
      pieces.push_back({dataset_path(section.name), tensor.dtype, section.shape,
                        std::vector<std::int64_t>(section.shape.size(), 0), section.shape, range.flat_begin,
                        range.flat_end, data});
    }
  }
  load_checkpoint(MpiComm{}, checkpoint, pieces);
  for (std::size_t i = 0; i < pieces.size(); ++i) device_.upload(stream_, tensors[i], pieces[i].data);
  params_.refresh(device_.kernels(), stream_);
  stream_.synchronize();
}

std::vector<float> Inference::logits(std::span<const std::int32_t> tokens, std::int64_t positions) {
  const auto count = static_cast<std::int64_t>(tokens.size());
  LLMTRAIN_CHECK(count > 0 && count <= deck_.model.seq_len && positions > 0 && positions <= count);
  std::vector<std::int32_t> places(tokens.size());
  std::iota(places.begin(), places.end(), 0);
  Batch batch;
  batch.batch = 1;
  batch.sequence = count;
  batch.tokens = arena_[tokens_slot_].rows_at(0, count);
  batch.positions = arena_[positions_slot_].rows_at(0, count);
  device_.upload(stream_, batch.tokens, tokens.data());
  device_.upload(stream_, batch.positions, places.data());

  Context ctx{device_.kernels(), stream_, *scratch_};
  const Tensor padded = arena_[logits_slot_].rows_at(0, positions);  // [positions, padded vocab]
  stage_.logits(ctx, batch, {.input = arena_[input_slot_].rows_at(0, count), .output = {}, .gradient = {}}, params_,
                padded);
  const std::int64_t vocab = deck_.model.vocab;
  ScratchStack::Frame frame(*scratch_, "logits");
  const Tensor dense = frame.take(padded.dtype, {positions, vocab});
  const Tensor rounded = frame.take(DType::fp32, {positions, vocab});
  ctx.kernels.copy(stream_, dense, padded.cols_at(0, vocab));
  ctx.kernels.convert(stream_, rounded, dense);
  std::vector<float> result(static_cast<std::size_t>(positions * vocab));
  device_.download(stream_, result.data(), rounded);
  stream_.synchronize();
  return result;
}

std::unique_ptr<Inference> make_inference(const Deck& deck, Device& device) {
  const std::unique_ptr<Device> trace = make_trace_device(device.kind());
  Inference dry(deck, *trace, 0);
  const std::vector<std::int32_t> tokens(static_cast<std::size_t>(deck.model.seq_len), 0);
  dry.logits(tokens, deck.model.seq_len);
  return std::make_unique<Inference>(deck, device, dry.scratch_high_water());
}

}  // namespace llmtrain
