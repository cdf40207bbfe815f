// SPDX-License-Identifier: Apache-2.0
/// The ranked table, why the best wins, and the batch script of a layout.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "llmtrain/base/text.hpp"
#include "llmtrain/plan/search.hpp"

namespace llmtrain {

namespace {

const char* name_of(Recompute recompute) {
  switch (recompute) {
    case Recompute::none: return "none";
    case Recompute::selective: return "selective";
    case Recompute::block: return "block";
  }
  return "?";
}

/// The largest weights that stay whole: all of them, but under ZeRO-3.
std::string whole_weights(const Deck& deck) {
  return deck.parallel.zero < 3 ? "all" : human_count(deck.parallel.persistence);
}

std::string layers_of(const Deck& deck) { return deck.parallel.stage_layers.empty() ? "even" : "balanced"; }

/// A dimension of the search.
struct Choice {
  const char* key;
  std::function<std::string(const Deck&)> value;
};

std::vector<Choice> choices() {
  return {{"parallel.tensor", [](const Deck& d) { return std::to_string(d.parallel.tensor); }},
          {"parallel.pipeline", [](const Deck& d) { return std::to_string(d.parallel.pipeline); }},
          {"schedule.chunks", [](const Deck& d) { return std::to_string(d.schedule.chunks); }},
          {"parallel.stage_layers", layers_of},
          {"parallel.zero", [](const Deck& d) { return std::to_string(d.parallel.zero); }},
          {"parallel.persistence", whole_weights},
          {"schedule.micro_batch", [](const Deck& d) { return std::to_string(d.schedule.micro_batch); }},
          {"schedule.recompute", [](const Deck& d) { return std::string(name_of(d.schedule.recompute)); }},
          {"precision.keep_fp8", [](const Deck& d) { return std::string(d.precision.keep_fp8 ? "true" : "false"); }}};
}

/// What `other` spends more than `best`, the largest part first: "computing +0.8 s, bubble +0.2 s".
std::string difference(const StepTimes& best, const StepTimes& other) {
  std::vector<std::pair<double, const char*>> parts{
      {other.compute - best.compute, "computing"},
      {other.waiting - best.waiting, "collectives"},
      {other.bubble * other.seconds - best.bubble * best.seconds, "bubble"}};
  std::sort(parts.begin(), parts.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  std::string text;
  for (const auto& [seconds, what] : parts)
    text += fmt::format("{}{} {:+.3g} s", text.empty() ? "" : ", ", what, seconds);
  return text;
}

std::string reasons(const Search& search) {
  const Candidate& best = search.ranked.front();
  std::string text = "\nwhy the first one: the best of those with another value of each choice\n";
  for (const Choice& choice : choices()) {
    const std::string mine = choice.value(best.deck);
    if (mine == "all") continue;  // the ZeRO level says as much
    const auto other = std::find_if(search.ranked.begin(), search.ranked.end(),
                                    [&](const Candidate& c) { return choice.value(c.deck) != mine; });
    if (other == search.ranked.end()) continue;
    text += fmt::format("  {:<20} {} instead of {}: {:+.1f} % time; {}\n", choice.key, choice.value(other->deck), mine,
                        100 * (other->times.seconds / best.times.seconds - 1), difference(best.times, other->times));
  }
  return text;
}

}  // namespace

std::string search_text(const Search& search, const Deck& deck, int ranks, const Hardware& hardware, int rows) {
  std::string text = fmt::format(
      "{} layouts of {} ranks of {} planned, {} too large, {} not looked at because they save memory that is not "
      "needed; "
      "every time is a prediction\n",
      search.tried, ranks, hardware.name, search.too_large, search.slower);
  if (search.ranked.empty()) return text;
  const double tokens = static_cast<double>(deck.schedule.global_batch * deck.model.seq_len);
  const bool fp8 = deck.precision.linear == LinearProducts::fp8;
  const auto of_copies = [fp8](const char* cell) { return fp8 ? fmt::format(" {:<6}", cell) : ""; };
  text += fmt::format(
      "  {:>4} {:>6} {:>8} {:>6} {:>8} {:>5} {:>5} {:>7} {:>11} {:<10}{} {:>10} {:>9} {:>9} {:>7} {:>9} {:>7}\n", "",
      "tensor", "pipeline", "chunks", "layers", "data", "zero", "whole", "micro_batch", "recompute",
      of_copies("copies"), "memory", "step, s", "tok/s/GPU", "MFU (A)", "waiting", "bubble");
  for (std::size_t i = 0; i < std::min(search.ranked.size(), static_cast<std::size_t>(rows)); ++i) {
    const Candidate& c = search.ranked[i];
    const ParallelConfig& p = c.deck.parallel;
    text += fmt::format(
        "  {:>4} {:>6} {:>8} {:>6} {:>8} {:>5} {:>5} {:>7} {:>11} {:<10}{} {:>10} {:>9.4g} {:>9} {:>6.1f}% {:>8.1f}% "
        "{:>6.1f}%\n",
        i + 1, p.tensor, p.pipeline, c.deck.schedule.chunks, layers_of(c.deck), ranks / (p.tensor * p.pipeline), p.zero,
        whole_weights(c.deck), c.deck.schedule.micro_batch, name_of(c.deck.schedule.recompute),
        of_copies(c.deck.precision.keep_fp8 ? "kept" : "made"), human_bytes(c.peak_bytes), c.times.seconds,
        grouped(std::llround(tokens / c.times.seconds / ranks)), 100 * c.mfu_a, 100 * c.times.waiting / c.times.seconds,
        100 * c.times.bubble);
  }
  return text + reasons(search);
}

std::string job_script(const Deck& deck, const std::string& deck_path, int ranks, const Hardware& hardware) {
  const int a_node = std::min(ranks, hardware.ranks_a_node), nodes = (ranks + a_node - 1) / a_node;
  std::string text = fmt::format(
      "#!/usr/bin/env bash\n# {} ranks for {}; from the top of the repository: sbatch THIS\n#SBATCH --job-name={}\n"
      "#SBATCH --nodes={}\n#SBATCH --ntasks={}\n#SBATCH --ntasks-per-node={}\n",
      ranks, deck_path, deck.run.name, nodes, ranks, a_node);
  if (hardware.gpu) text += fmt::format("#SBATCH --gres=gpu:{}\n#SBATCH --gres-flags=enforce-binding\n", a_node);
  text +=
      "#SBATCH --exclusive\n#SBATCH --mem=0\n#SBATCH --time=24:00:00\n#SBATCH --signal=B:USR1@300\n#SBATCH --requeue\n"
      "#SBATCH --open-mode=append\n#SBATCH --output=%x-%j.log\n\n";
  return text + fmt::format("exec \"${{LLMTRAIN_HOME:-$SLURM_SUBMIT_DIR}}/jobs/slurm-run.sh\" {}\n", deck_path);
}

}  // namespace llmtrain
