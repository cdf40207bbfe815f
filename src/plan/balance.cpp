// SPDX-License-Identifier: Apache-2.0
/// The costs of the ends, and layers given one by one to whoever has least.
#include "llmtrain/plan/balance.hpp"

#include <algorithm>

#include "llmtrain/base/error.hpp"
#include "llmtrain/model/pieces.hpp"

namespace llmtrain {

namespace {

/// How many of `layers` each gets that has `load` layers' worth of other work: each `least`, then whoever has least.
std::vector<std::int64_t> deal(std::int64_t layers, std::int64_t least, std::vector<double> load) {
  std::vector<std::int64_t> given(load.size(), least);
  for (double& l : load) l += static_cast<double>(least);
  for (std::int64_t rest = layers - least * std::ssize(load); rest > 0; --rest) {
    const auto last_of_least = std::prev(std::min_element(load.rbegin(), load.rend()).base());
    *last_of_least += 1;
    ++given[static_cast<std::size_t>(last_of_least - load.begin())];
  }
  return given;
}

/// By piece.
std::vector<std::int64_t> layers_of(const Deck& deck) {
  std::vector<std::int64_t> layers;
  const int pieces = deck.parallel.pipeline * deck.schedule.chunks;
  for (const ModelPiece& piece : cut_model(deck.model.layers, deck.parallel, pieces)) layers.push_back(piece.layers);
  return layers;
}

}  // namespace

EndCosts end_costs(const Deck& deck, const std::vector<double>& stage_seconds) {
  std::vector<double> layers(stage_seconds.size());
  const std::vector<std::int64_t> split = layers_of(deck);
  for (std::size_t i = 0; i < split.size(); ++i) layers[i % layers.size()] += static_cast<double>(split[i]);
  const std::size_t inner = layers.size() > 2 ? 1 : 0;
  const double layer = stage_seconds[inner] / layers[inner];
  return {std::max(0.0, stage_seconds.front() / layer - layers.front()),
          std::max(0.0, stage_seconds.back() / layer - layers.back())};
}

std::vector<std::int64_t> balanced_layers(std::int64_t layers, int stages, int chunks, const EndCosts& ends) {
  LLMTRAIN_CHECK(stages > 1 && layers >= std::int64_t{stages} * chunks);
  const auto count = static_cast<std::size_t>(stages);
  std::vector<double> stage_load(count);
  stage_load.front() = ends.embedding;
  stage_load.back() = ends.head;
  const std::vector<std::int64_t> of_stage = deal(layers, chunks, std::move(stage_load));
  std::vector<std::int64_t> split(count * static_cast<std::size_t>(chunks));
  for (std::size_t stage = 0; stage < count; ++stage) {
    std::vector<double> piece_load(static_cast<std::size_t>(chunks));
    if (stage == 0) piece_load.front() = ends.embedding;
    if (stage == count - 1) piece_load.back() = ends.head;
    const std::vector<std::int64_t> of_piece = deal(of_stage[stage], 1, std::move(piece_load));
    for (std::size_t chunk = 0; chunk < of_piece.size(); ++chunk) split[chunk * count + stage] = of_piece[chunk];
  }
  return split;
}

std::optional<Deck> balanced_deck(const Deck& deck, const EndCosts& ends) {
  const int stages = deck.parallel.pipeline, chunks = deck.schedule.chunks;
  if (deck.model.layers < std::int64_t{stages} * chunks) return std::nullopt;
  Deck balanced = deck;
  balanced.parallel.stage_layers = balanced_layers(deck.model.layers, stages, chunks, ends);
  if (layers_of(balanced) == layers_of(deck)) return std::nullopt;
  return balanced;
}

}  // namespace llmtrain
