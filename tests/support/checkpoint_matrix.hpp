// SPDX-License-Identifier: Apache-2.0
/// A checkpoint of any layout in any other: the same tensors bit for bit, and five more steps that are those of the layout
/// that wrote it, within the bounds of the layout matrix; on the same layout in every bit.
#pragma once

#include <doctest/doctest.h>

#include <map>

#include "checkpoint_fixture.hpp"
#include "llmtrain/base/digest.hpp"
#include "llmtrain/checkpoint/loader.hpp"
#include "llmtrain/checkpoint/saver.hpp"
#include "llmtrain/driver/state.hpp"
#include "support/layout_matrix.hpp"

namespace llmtrain::checkpoint_matrix {

namespace fs = std::filesystem;

inline constexpr std::int64_t saved_at = 3;
inline constexpr std::int64_t more = 5;

struct NamedLayout {
  const char* name;
  Layout layout;
};

inline std::vector<NamedLayout> layouts() {
  const auto row = [](const char* name, int ranks, int tensor, int pipeline, int zero, int chunks = 1) {
    const ScheduleKind kind = chunks > 1 ? ScheduleKind::interleaved : ScheduleKind::one_f_one_b;
    return NamedLayout{name, {ranks, tensor, pipeline, 0, zero, true, kind, chunks, Recompute::none, pipeline}};
  };
  return {row("1", 1, 1, 1, 1),         row("dp2", 2, 1, 1, 1),
          row("tp2", 2, 2, 1, 1),       row("pp2", 2, 1, 2, 1),
          row("dp2 tp2", 4, 2, 1, 1),   row("tp2 pp2", 4, 2, 2, 1),
          row("dp4 zero3", 4, 1, 1, 3), row("tp2 pp2 chunks2", 4, 2, 2, 1, 2)};
}

/// The shapes of the models of the layout matrix, with half of their layers: four pieces of a pipeline.
inline std::vector<NamedDeck> models() {
  std::vector<NamedDeck> models = matrix_models();
  for (NamedDeck& model : models) model.deck.model.layers = 4;
  return {models[0], models[2]};
}

inline void save(const MpiComm& members, Parts& parts, const fs::path& folder) {
  CheckpointState state;
  state.step = saved_at;
  state.run_id = "matrix";
  state.deck = "{}";
  StateMirror mirror(parts, StatePart::owned);
  mirror.download();
  save_checkpoint(members, folder, state, mirror.pieces(), {});
}

inline void load(const MpiComm& members, Parts& parts, const fs::path& folder) {
  StateMirror mirror(parts, StatePart::updated);
  load_checkpoint(members, open_checkpoint(members, folder, Files::at_load), mirror.pieces());
  mirror.upload();
}

/// Digest of each tensor of a checkpoint as a whole, whatever its pieces are.
inline std::map<std::string, std::string> tensors(const fs::path& folder) {
  const CheckpointReader reader({}, open_checkpoint({}, folder));
  std::map<std::string, std::string> digests;
  for (const ManifestTensor& tensor : reader.checkpoint().manifest.tensors) {
    const std::int64_t elements = checked_volume(tensor.shape);
    std::vector<std::byte> memory(static_cast<std::size_t>(elements * size_of(tensor.dtype)));
    const Piece whole{
        tensor.name, tensor.dtype, tensor.shape, std::vector<std::int64_t>(tensor.shape.size(), 0), tensor.shape,
        0,           elements,     memory.data()};
    reader.read(std::span(&whole, 1));
    digests[tensor.name] = digest_of(memory.data(), memory.size());
  }
  return digests;
}

/// Runs `decks` in every layout, and has each layout's checkpoint read by those that stand so many places behind it in the
/// list; 0, itself, comes first. On four ranks.
inline void check_pairs(const std::vector<NamedDeck>& decks, const std::vector<std::size_t>& distances) {
  LayoutJob job;
  std::unique_ptr<ScratchFolder> own;
  if (job.world.rank() == 0) own = std::make_unique<ScratchFolder>();
  const fs::path scratch = job.world.broadcast(own ? own->path() : std::string(), 0);
  const std::vector<NamedLayout> all = layouts();
  int pairs = 0;
  for (const auto& [model, deck] : decks) {
    // Each layout alone: its checkpoint, and its steps before and after without a stop.
    std::vector<LayoutNumbers> whole;
    for (const auto& [name, layout] : all) {
      const fs::path folder = scratch / model / name;
      job.run(layout.apply(deck), layout.ranks, saved_at, LoaderShape::no_token,
              {0, {}, [&](const MpiComm& members, Parts& parts) { save(members, parts, folder); }});
      whole.push_back(job.run(layout.apply(deck), layout.ranks, saved_at + more));
      job.world.barrier();
    }
    for (std::size_t from = 0; from < whole.size(); ++from) {
      const auto& [writer, written] = all[from];
      const fs::path folder = scratch / model / writer;
      std::map<std::string, std::string> expected;
      if (job.world.rank() == 0) expected = tensors(folder);
      LayoutNumbers own_steps;
      for (const std::size_t k : distances) {
        const std::size_t to = (from + k) % whole.size();  // itself first
        const auto& [reader, layout] = all[to];
        const fs::path again = folder / "again" / reader;
        CAPTURE(writer);
        CAPTURE(reader);
        const LayoutNumbers steps = job.run(layout.apply(deck), layout.ranks, more, LoaderShape::no_token,
                                            {saved_at,
                                             [&](const MpiComm& members, Parts& parts) {
                                               load(members, parts, folder);
                                               save(members, parts, again);
                                             },
                                             {}});
        job.world.barrier();
        ++pairs;
        if (k == 0) own_steps = steps;
        if (job.world.rank() != 0) continue;
        CHECK((tensors(again) == expected));
        if (k > 0) {
          job.check_agreement(steps, own_steps, Agreement::bound);
          continue;
        }
        const LayoutNumbers& uninterrupted = whole[from];
        for (std::size_t n = 0; n < static_cast<std::size_t>(more); ++n) {
          CHECK(steps.loss[n] == uninterrupted.loss[saved_at + n]);
          CHECK(steps.gradient_norm[n] == uninterrupted.gradient_norm[saved_at + n]);
        }
        for (std::size_t i = 0; i < steps.parameters.size(); ++i) {
          CHECK((steps.parameters[i].values == uninterrupted.parameters[i].values));
        }
      }
    }
  }
  job.world.barrier();
  if (job.world.rank() == 0) MESSAGE(pairs, " pairs; ", job.worst());
}

}  // namespace llmtrain::checkpoint_matrix
