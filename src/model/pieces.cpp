// SPDX-License-Identifier: Apache-2.0
/// The division of layers, and of the parameter table with them.
#include "llmtrain/model/pieces.hpp"

#include "llmtrain/base/error.hpp"
#include "llmtrain/config/check.hpp"
#include "llmtrain/model/param_table.hpp"

namespace llmtrain {

std::vector<ModelPiece> cut_model(std::int64_t layers, const ParallelConfig& parallel, int pieces) {
  const std::vector<std::int64_t> split =
      parallel.stage_layers.empty() ? even_layers(layers, parallel, pieces) : parallel.stage_layers;
  LLMTRAIN_CHECK(std::ssize(split) == pieces);
  std::vector<ModelPiece> cut;
  std::int64_t first = 0;
  for (int i = 0; i < pieces; ++i) {
    cut.push_back({first, split[static_cast<std::size_t>(i)], i == 0, i == pieces - 1});
    LLMTRAIN_CHECK(cut.back().layers >= 0 && cut.back().leases() > 0);
    first += cut.back().layers;
  }
  LLMTRAIN_CHECK(first == layers);
  return cut;
}

PassLeases PieceLeases::forward() const {
  PassLeases leases;
  if (piece.embedding) leases.weights.push_back(embedding());
  for (std::int64_t i = 0; i < piece.layers; ++i) leases.weights.push_back(block(i));
  if (!piece.head) return leases;
  leases.weights.push_back(head());
  leases.gradients.push_back(head());
  return leases;
}

PassLeases PieceLeases::backward() const {
  PassLeases leases;
  for (std::int64_t i = piece.layers - 1; i >= 0; --i) leases.weights.push_back(block(i));
  leases.gradients = leases.weights;
  if (piece.embedding) leases.gradients.push_back(embedding());
  return leases;
}

LeaseSequence every_lease(std::span<const PieceLeases> pieces) {
  LeaseSequence all;
  for (const PieceLeases& leases : pieces) {
    for (int i = 0; i < leases.piece.leases(); ++i) all.push_back(leases.first + i);
  }
  return all;
}

ParamTable table_of(const ParamTable& whole, std::span<const PieceLeases> pieces, std::int64_t layers) {
  std::vector<int> leases;
  for (const auto& [piece, first] : pieces) {
    LLMTRAIN_CHECK(first == std::ssize(leases));
    if (piece.embedding) leases.push_back(embedding_lease());
    for (std::int64_t i = 0; i < piece.layers; ++i) leases.push_back(block_lease(piece.first_layer + i));
    if (piece.head) leases.push_back(head_lease(layers));
  }
  return whole.part(leases);
}

}  // namespace llmtrain
