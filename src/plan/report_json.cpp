// SPDX-License-Identifier: Apache-2.0
/// The JSON form of plans; `schema` grows when a member changes its meaning or goes.
#include <algorithm>

#include "llmtrain/base/json.hpp"
#include "llmtrain/metrics/flops.hpp"
#include "llmtrain/plan/report.hpp"

namespace llmtrain {

namespace {

constexpr int schema = 1;

JsonObject layout_of(const LayoutPlan& plan) {
  const Topology topology = plan.topology();
  JsonObject layout;
  layout.add("ranks", plan.ranks)
      .add("tensor", topology.size(Axis::tp))
      .add("pipeline", topology.size(Axis::pp))
      .add("data", topology.size(data_axes))
      .add("shard", topology.size(Axis::shard))
      .add("zero", plan.deck.parallel.zero)
      .add("chunks", plan.deck.schedule.chunks)
      .add("micro_batch", plan.deck.schedule.micro_batch)
      .add("micro_batches", plan.micro_batches())
      .add("hardware", plan.hardware.name)
      .add("ranks_a_node", plan.hardware.ranks_a_node);
  return layout;
}

JsonObject constants_in(const Hardware& hardware) {
  JsonObject constants;
  for (const auto& [path, value] : constants_of(hardware)) constants.add(path, value);
  return constants;
}

JsonObject memory_of(const RankClass& c) {
  JsonObject memory;
  for (int i = 0; i < segment_count; ++i) {
    const auto segment = static_cast<Segment>(i);
    memory.add(name_of(segment), c.memory.bytes(segment));
  }
  return memory.add("static", c.static_bytes()).add("peak", c.peak_bytes());
}

JsonArray classes_of(const LayoutPlan& plan) {
  JsonArray classes;
  for (const RankClass& c : plan.classes) {
    JsonArray stages;
    for (const int stage : c.stages) stages.add(stage);
    classes.add(
        JsonObject().add("name", c.name).add("ranks", c.ranks).add("stages", stages).add("memory", memory_of(c)));
  }
  return classes;
}

JsonArray collectives_of(const LayoutPlan& plan) {
  const auto sent = [](const RankClass& c) {
    double sum = 0;
    for (const auto& [key, total] : c.work.collectives) sum += total.sent;
    return sum;
  };
  const RankClass& busiest = *std::max_element(plan.classes.begin(), plan.classes.end(),
                                               [&](const auto& a, const auto& b) { return sent(a) < sent(b); });
  JsonArray collectives;
  for (const auto& [key, total] : busiest.work.collectives) {
    collectives.add(JsonObject()
                        .add("axis", key.first)
                        .add("op", key.second)
                        .add("calls", total.calls)
                        .add("bytes", total.bytes)
                        .add("ranks", total.placement.size)
                        .add("nodes", total.placement.nodes)
                        .add("sent", total.sent));
  }
  return collectives;
}

}  // namespace

std::string plan_json(const LayoutPlan& plan) {
  const StepTimes& t = plan.times;
  JsonObject exposed;
  exposed.add("total", t.exposed.total());
  for (const auto& [axis, seconds] : t.exposed.axes()) exposed.add(axis, seconds);
  JsonObject step;
  step.add("flops_a", plan.flops_a)
      .add("flops_b", plan.flops_b)
      .add("seconds", t.seconds)
      .add("bubble", t.bubble)
      .add("tokens", plan.tokens)
      .add("tokens_per_second_per_rank", static_cast<double>(plan.tokens) / t.seconds / plan.ranks)
      .add("mfu_a", plan.mfu(plan.flops_a))
      .add("mfu_b", plan.mfu(plan.flops_b))
      .add("computing", t.compute)
      .add("waiting", t.waiting)
      .add("exposed", exposed);
  return JsonObject()
      .add("schema", schema)
      .add("layout", layout_of(plan))
      .add("constants", constants_in(plan.hardware))
      .add("parameters", count_parameters(plan.deck.model).total)
      .add("classes", classes_of(plan))
      .add("collectives", collectives_of(plan))
      .add("step", step)
      .add("fits", plan.fits)
      .text();
}

}  // namespace llmtrain
