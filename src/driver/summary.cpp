// SPDX-License-Identifier: Apache-2.0
/// The start-up summary: what this run will do, before it does it.
#include <fmt/ranges.h>

#include <algorithm>

#include "llmtrain/backend/software.hpp"
#include "llmtrain/base/text.hpp"
#include "llmtrain/driver/launch.hpp"
#include "llmtrain/driver/micro_batches.hpp"
#include "llmtrain/metrics/flops.hpp"
#include "llmtrain/model/pieces.hpp"
#include "llmtrain/schedule/simulate.hpp"
#include "llmtrain/topology/placement.hpp"

namespace llmtrain {

namespace {

/// How the pipeline cuts the model, and how long its stages stand still whatever the machine.
std::string pipeline_lines(const Deck& deck, const Topology& topology) {
  const int stages = topology.size(Axis::pp), chunks = deck.schedule.chunks;
  if (stages == 1) return {};
  const std::int64_t micro_batches = micro_batches_of(deck, topology);
  std::vector<std::int64_t> layers;
  for (const ModelPiece& piece : cut_model(deck.model.layers, deck.parallel, stages * chunks)) {
    layers.push_back(piece.layers);
  }
  const Simulation simulation = simulate(make_schedules(deck.schedule.kind, stages, micro_batches, chunks));
  return fmt::format(
      "  pipeline layers {} of {} stages{}; stages idle {:.1f}% of a step by the schedule (backward = 2 forwards), at "
      "most {} micro-batches alive on a stage\n",
      fmt::join(layers, " "), stages, chunks > 1 ? fmt::format(" in {} chunks each", chunks) : "",
      100 * simulation.idle(), *std::max_element(simulation.in_flight.begin(), simulation.in_flight.end()));
}

/// Which rank sits where.
std::string placement_lines(const Launch& launch) {
  constexpr std::size_t most = 32;
  std::string text;
  if (launch.place.topology.ranks() == 1) return text;
  const std::vector<std::string> lines = placement(launch.place.topology);
  for (std::size_t i = 0; i < std::min(lines.size(), most); ++i) {
    text += fmt::format("  {:<8} {}\n", i == 0 ? "ranks" : "", lines[i]);
  }
  if (lines.size() > most) text += fmt::format("  {:<8} and {} lines more\n", "", lines.size() - most);
  return text;
}

}  // namespace

std::string summary(const Launch& launch, const Measured& measured) {
  const Deck& deck = launch.deck;
  const Topology& topology = launch.place.topology;
  const ModelConfig& m = deck.model;
  const ParameterCounts counts = count_parameters(m);
  const std::int64_t step_tokens = deck.schedule.global_batch * m.seq_len;
  std::string text = fmt::format("run '{}': {} steps of {} sequences x {} tokens = {} tokens a step\n", deck.run.name,
                                 deck.run.steps, deck.schedule.global_batch, m.seq_len, grouped(step_tokens));
  text += fmt::format("  device   {}\n", launch.device->describe());
  if (launch.device->kind() == DeviceKind::cuda) text += fmt::format("  software {}\n", cuda_software());
  text +=
      fmt::format("  layout   {} rank{}: tensor {}, pipeline {}, data {} (ZeRO-{}); {} micro-batch{} of {} a rank\n",
                  topology.ranks(), topology.ranks() == 1 ? "" : "s", topology.size(Axis::tp), topology.size(Axis::pp),
                  topology.size(data_axes), deck.parallel.zero, micro_batches_of(deck, topology),
                  micro_batches_of(deck, topology) == 1 ? "" : "es", deck.schedule.micro_batch);
  text += pipeline_lines(deck, topology) + placement_lines(launch);
  text += fmt::format("  model    {} parameters: {} layers, hidden {}, heads {} ({} kv), ffn {}, vocabulary {}{}\n",
                      grouped(counts.total), m.layers, m.hidden, m.heads, m.kv_heads, m.ffn, m.vocab,
                      m.tied ? ", tied" : "");
  if (deck.precision.linear == LinearProducts::fp8)
    text += "  linear   layers of blocks in fp8: E4M3, gradients E5M2\n";
  text += fmt::format("  data     {} samples of {} tokens", grouped(launch.data.train->samples()), m.seq_len);
  for (const ValidSet& set : launch.data.valid) {
    text += fmt::format(", {} in {}", grouped(set.dataset->samples()), set.name);
  }
  text += launch.data.valid.empty() ? "; no evaluation\n" : " for evaluation\n";
  text += fmt::format("  memory   {} a rank\n", human_bytes(measured.plan.total()));
  for (int i = 0; i < segment_count; ++i) {
    const auto segment = static_cast<Segment>(i);
    const std::int64_t bytes = measured.plan.bytes(segment);
    if (bytes > 0) text += fmt::format("           {:<12} {:>9}\n", name_of(segment), human_bytes(bytes));
  }
  text += fmt::format("  flops    {} a step in matrix products and attention on this rank\n",
                      si(measured.trace.flops(), "FLOP"));
  std::string peak;
  launch.device->peak_flops(data_dtype(deck.precision.compute), &peak);
  text += fmt::format("  peak     {}\n", peak);
  text +=
      fmt::format("  files    {0}/deck.yaml, {0}/metrics.jsonl, {0}/log.txt, {1}", deck.run.dir, deck.checkpoint.dir);
  return text;
}

}  // namespace llmtrain
