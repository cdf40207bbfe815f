// SPDX-License-Identifier: Apache-2.0
/// How a pipeline cuts the model: contiguous pieces of layers, one a stage and chunk.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "llmtrain/config/deck.hpp"
#include "llmtrain/params/param_table.hpp"

namespace llmtrain {

/// Layers [first_layer, first_layer + layers) of the model and what stands at its ends. A piece may have no layers where the
/// embedding or the head counts as one.
struct ModelPiece {
  std::int64_t first_layer = 0;
  std::int64_t layers = 0;
  bool embedding = true;
  bool head = true;

  int leases() const { return static_cast<int>(layers) + (embedding ? 1 : 0) + (head ? 1 : 0); }
};

/// The whole model as one piece.
inline ModelPiece whole_model(const ModelConfig& model) { return {0, model.layers, true, true}; }

/// The model's pieces in order, of parallel.stage_layers if given, else of even_layers (config/check.hpp).
std::vector<ModelPiece> cut_model(std::int64_t layers, const ParallelConfig& parallel, int pieces);

/// The rows of `whole` that a rank with these pieces holds; the leases of a piece stand together, pieces in order.
ParamTable table_of(const ParamTable& whole, std::span<const ModelPiece> pieces, std::int64_t layers);

}  // namespace llmtrain
