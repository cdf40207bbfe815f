// SPDX-License-Identifier: Apache-2.0
/// The start-up summary: what this run will do, before it does it.
#include "llmtrain/base/text.hpp"
#include "llmtrain/driver/launch.hpp"
#include "llmtrain/metrics/flops.hpp"

namespace llmtrain {

std::string summary(const Launch& launch, const Measured& measured) {
  const Deck& deck = launch.deck;
  const Topology& topology = launch.place.topology;
  const ModelConfig& m = deck.model;
  const ParameterCounts counts = count_parameters(m);
  const std::int64_t step_tokens = deck.schedule.global_batch * m.seq_len;
  std::string text = fmt::format("run '{}': {} steps of {} sequences x {} tokens = {} tokens a step\n", deck.run.name,
                                 deck.run.steps, deck.schedule.global_batch, m.seq_len, grouped(step_tokens));
  text += fmt::format("  device   {}\n", launch.device->describe());
  text +=
      fmt::format("  layout   {} rank{}: tensor {}, pipeline {}, data {} (ZeRO-{}); {} micro-batch{} of {} a rank\n",
                  topology.ranks(), topology.ranks() == 1 ? "" : "s", topology.size(Axis::tp), topology.size(Axis::pp),
                  topology.size(data_axes), deck.parallel.zero,
                  deck.schedule.global_batch / (deck.schedule.micro_batch * topology.size(data_axes)),
                  deck.schedule.global_batch == deck.schedule.micro_batch * topology.size(data_axes) ? "" : "es",
                  deck.schedule.micro_batch);
  text += fmt::format("  model    {} parameters: {} layers, hidden {}, heads {} ({} kv), ffn {}, vocabulary {}{}\n",
                      grouped(counts.total), m.layers, m.hidden, m.heads, m.kv_heads, m.ffn, m.vocab,
                      m.tied ? ", tied" : "");
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
  text +=
      fmt::format("  files    {0}/deck.yaml, {0}/metrics.jsonl, {0}/log.txt, {1}", deck.run.dir, deck.checkpoint.dir);
  return text;
}

}  // namespace llmtrain
