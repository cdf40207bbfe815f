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

ParamTable table_of(const ParamTable& whole, std::span<const ModelPiece> pieces, std::int64_t layers) {
  std::vector<int> leases;
  for (const ModelPiece& piece : pieces) {
    if (piece.embedding) leases.push_back(embedding_lease());
    for (std::int64_t i = 0; i < piece.layers; ++i) leases.push_back(block_lease(piece.first_layer + i));
    if (piece.head) leases.push_back(head_lease(layers));
  }
  return whole.part(leases);
}

}  // namespace llmtrain
