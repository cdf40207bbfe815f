// SPDX-License-Identifier: Apache-2.0
/// How a pipeline cuts the model: contiguous pieces of layers, one a stage and chunk.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "llmtrain/config/deck.hpp"
#include "llmtrain/parallel/stores.hpp"

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

/// Leases that a pass over a piece borrows, in order: those whose weights it acquires, and those whose gradients it opens.
struct PassLeases {
  LeaseSequence weights;
  LeaseSequence gradients;
};

/// A piece and the numbers of its leases in the rank's table, where they stand together.
struct PieceLeases {
  ModelPiece piece;
  int first = 0;

  int embedding() const { return first; }
  int block(std::int64_t i) const { return first + (piece.embedding ? 1 : 0) + static_cast<int>(i); }  ///< its i-th
  int head() const { return first + piece.leases() - 1; }
  PassLeases forward() const;  ///< the head's backward included
  PassLeases backward() const;
};

/// All leases of a rank with these pieces, in the order of its table.
LeaseSequence every_lease(std::span<const PieceLeases> pieces);

/// The whole model as one piece.
inline ModelPiece whole_model(const ModelConfig& model) { return {0, model.layers, true, true}; }

/// The model's pieces in order, of parallel.stage_layers if given, else of even_layers (config/check.hpp).
std::vector<ModelPiece> cut_model(std::int64_t layers, const ParallelConfig& parallel, int pieces);

/// The rows of `whole` that a rank with these pieces holds; the leases of a piece stand together, pieces in order.
ParamTable table_of(const ParamTable& whole, std::span<const PieceLeases> pieces, std::int64_t layers);

}  // namespace llmtrain
