// SPDX-License-Identifier: Apache-2.0
/// What a person wants to know of a plan, in the order of the questions: what, how large, does it fit, what moves, how fast.
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "llmtrain/base/text.hpp"
#include "llmtrain/driver/layout_run.hpp"
#include "llmtrain/memory/remedy.hpp"
#include "llmtrain/metrics/flops.hpp"
#include "llmtrain/plan/report.hpp"

namespace llmtrain {

namespace {

std::string header(const LayoutPlan& plan, const std::string& name) {
  const Deck& deck = plan.deck;
  const ModelConfig& m = deck.model;
  const ParameterCounts counts = count_parameters(m);
  const int a_node = plan.hardware.ranks_a_node;
  const auto count = static_cast<double>(counts.total);
  std::string text =
      fmt::format("plan of {} on {} of {}, {} node{}: nothing was run, every time is a prediction\n  layout    {}\n",
                  name, plan.ranks, plan.hardware.name, (plan.ranks + a_node - 1) / a_node,
                  plan.ranks > a_node ? "s" : "", layout_text(deck, plan.topology()));
  text += fmt::format("  model     {} parameters: {} layers, hidden {}, heads {} ({} kv), ffn {}, vocabulary {}\n",
                      grouped(counts.total), m.layers, m.hidden, m.heads, m.kv_heads, m.ffn, m.vocab);
  text += fmt::format("  step      {} sequences x {} tokens = {} tokens; {} micro-batches of {} a rank\n",
                      deck.schedule.global_batch, m.seq_len, grouped(plan.tokens), plan.micro_batches(),
                      deck.schedule.micro_batch);
  if (deck.precision.compute == Compute::bf16) {
    text += fmt::format(
        "  state     18 B a parameter with fp32 gradients: {:.4g} B, {:.4g} a rank if all were cut evenly; 16 B with "
        "bf16 "
        "gradients: {:.4g} B, {:.4g}\n",
        18 * count, 18 * count / plan.ranks, 16 * count, 16 * count / plan.ranks);
  }
  return text;
}

std::string memory_table(const LayoutPlan& plan) {
  std::string text = "\nmemory of a rank, in bytes, exactly as allocated before the first step and kept to the end\n";
  const auto line = [&](std::string_view what, const auto& cell) {
    text += fmt::format("  {:<12}", what);
    for (const RankClass& c : plan.classes) text += fmt::format(" {:>18}", cell(c));
    text += '\n';
  };
  line("", [](const RankClass& c) { return c.name; });
  line("ranks", [](const RankClass& c) { return grouped(c.ranks); });
  for (int i = 0; i < segment_count; ++i) {
    const auto segment = static_cast<Segment>(i);
    const bool used = std::any_of(plan.classes.begin(), plan.classes.end(),
                                  [&](const RankClass& c) { return c.memory.bytes(segment) > 0; });
    if (used) line(name_of(segment), [&](const RankClass& c) { return grouped(c.memory.bytes(segment)); });
  }
  line("static", [](const RankClass& c) { return grouped(c.static_bytes()); });
  line("peak", [](const RankClass& c) { return grouped(c.peak_bytes()); });
  line("", [](const RankClass& c) { return human_bytes(c.peak_bytes()); });
  const Hardware& h = plan.hardware;
  if (h.memory == 0) return text + "  the hardware's memory is not known: whether this fits is not said\n";
  const double free = h.memory - h.reserved - static_cast<double>(plan.largest().peak_bytes());
  text += fmt::format("  {}: {} has {}, of which libraries take about {}; {} {}\n", plan.fits ? "fits" : "DOES NOT FIT",
                      h.name, human_bytes(static_cast<std::int64_t>(h.memory)),
                      human_bytes(static_cast<std::int64_t>(h.reserved)),
                      human_bytes(static_cast<std::int64_t>(std::abs(free))), free >= 0 ? "are free" : "are missing");
  return text;
}

std::string largest_lines(const LayoutPlan& plan) {
  const RankClass& c = plan.largest();
  std::string text = fmt::format("\nlargest lines ({})\n{}", c.name, c.memory.largest(6));
  std::vector<Segment> order;
  for (int i = 0; i < segment_count; ++i) order.push_back(static_cast<Segment>(i));
  std::stable_sort(order.begin(), order.end(),
                   [&](Segment a, Segment b) { return c.memory.bytes(a) > c.memory.bytes(b); });
  for (std::size_t i = 0; i < 3; ++i) {
    if (c.memory.bytes(order[i]) > 0) text += fmt::format("  less {:<12} {}\n", name_of(order[i]), remedy(order[i]));
  }
  return text;
}

std::string communication(const LayoutPlan& plan) {
  const auto sent = [](const RankClass& c) {
    double sum = 0;
    for (const auto& [key, total] : c.work.collectives) sum += total.sent;
    return sum;
  };
  const RankClass& busiest = *std::max_element(plan.classes.begin(), plan.classes.end(),
                                               [&](const auto& a, const auto& b) { return sent(a) < sent(b); });
  if (busiest.work.collectives.empty()) return "";
  std::string text =
      fmt::format("\ncommunication of a step on a rank ({})\n  {:<12} {:<15} {:>6} {:>6} {:>9} {:>20} {:>12} {}\n",
                  busiest.name, "axis", "collective", "ranks", "nodes", "calls", "bytes", "sent", "through");
  for (const auto& [key, total] : busiest.work.collectives) {
    text += fmt::format("  {:<12} {:<15} {:>6} {:>6} {:>9} {:>20} {:>12} {}\n", key.first, key.second,
                        total.placement.size, total.placement.nodes, total.calls, grouped(total.bytes),
                        human_bytes(static_cast<std::int64_t>(total.sent)),
                        total.placement.nodes > 1 ? "the network" : "the node");
  }
  return text;
}

std::string step(const LayoutPlan& plan) {
  const StepTimes& t = plan.times;
  const double a_rank = static_cast<double>(plan.tokens) / t.seconds / plan.ranks;
  std::string text = fmt::format("\nstep, predicted (constants: {})\n", plan.hardware.source);
  text += fmt::format("  flops     {} by 6 N + 6 L d s (A), {} by 6 N + 12 L d s (B)\n", si(plan.flops_a, "FLOP"),
                      si(plan.flops_b, "FLOP"));
  text += fmt::format("  time      {:.4g} s; {} tokens/s a rank, {} tokens a day in all\n", t.seconds,
                      grouped(std::llround(a_rank)), human_count(std::llround(a_rank * plan.ranks * 86400)));
  if (plan.mfu(1) > 0) {
    text += fmt::format("  MFU       {:.1f} % by A, {:.1f} % by B\n", 100 * plan.mfu(plan.flops_a),
                        100 * plan.mfu(plan.flops_b));
  }
  text += fmt::format(
      "  of it     computing {:.1f} %, waiting for or slowed by collectives {:.1f} %, pipeline bubble {:.1f} %\n",
      100 * t.compute / t.seconds, 100 * t.waiting / t.seconds, 100 * t.bubble);
  std::string exposed;
  for (const auto& [axis, seconds] : t.exposed.axes()) {
    exposed += fmt::format("{}{} {:.1f} %", exposed.empty() ? "" : ", ", axis, 100 * seconds / t.seconds);
  }
  text += fmt::format("  exposed   communication {:.1f} %: {}\n", 100 * t.exposed.total() / t.seconds, exposed);
  std::vector<std::pair<double, std::string>> parts;
  for (const auto& [name, seconds] : t.by_operation) parts.emplace_back(seconds, name);
  std::sort(parts.rbegin(), parts.rend());
  std::string line;
  for (std::size_t i = 0; i < std::min<std::size_t>(parts.size(), 5); ++i) {
    line += fmt::format("{}{} {:.1f} %", i > 0 ? ", " : "", parts[i].second, 100 * parts[i].first / t.seconds);
  }
  return text + fmt::format("  computing {}\n", line);
}

/// A shorter step of the same schedule, where that can be read.
std::string drawing(const LayoutPlan& plan) {
  const int stages = plan.topology().size(Axis::pp), chunks = plan.deck.schedule.chunks;
  constexpr int most_stages = 8;
  constexpr std::int64_t widest = 150;
  if (stages == 1) return "";
  const std::int64_t shown = std::min<std::int64_t>(plan.micro_batches(), 2 * stages);
  const Simulation simulation = simulate(make_schedules(plan.deck.schedule.kind, stages, shown, chunks));
  const std::string picture = draw(simulation);
  if (stages > most_stages || static_cast<std::int64_t>(picture.find('\n')) > widest) return "";
  return fmt::format("\nschedule, of {} micro-batches (F forward, B backward = 2 forwards)\n{}", shown, picture);
}

}  // namespace

std::string plan_text(const LayoutPlan& plan, const std::string& name) {
  std::string text =
      header(plan, name) + memory_table(plan) + largest_lines(plan) + communication(plan) + step(plan) + drawing(plan);
  text += "\nproved from the traces\n";
  for (const std::string& check : plan.checks) text += "  " + check + '\n';
  return text;
}

}  // namespace llmtrain
