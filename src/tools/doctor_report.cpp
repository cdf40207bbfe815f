// SPDX-License-Identifier: Apache-2.0
/// Figures beside the median of their like.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "llmtrain/base/median.hpp"
#include "llmtrain/base/text.hpp"
#include "llmtrain/tools/doctor.hpp"
#include "llmtrain/topology/placement.hpp"

namespace llmtrain {

namespace {

constexpr double giga = 1e9;

/// Figures of one kind, by whom they are of.
struct Like {
  std::string kind;
  double unit;            ///< of the figures as they are printed
  std::string unit_name;  ///< the same in words
  bool more_is_worse;     ///< latencies
  std::vector<std::string> whose;
  std::vector<double> figures;
  double middle = 0;  ///< their median

  /// Speed of figure i in parts of the median's.
  double part(std::size_t i) const {
    return middle <= 0 ? 1 : more_is_worse ? middle / figures[i] : figures[i] / middle;
  }
};

Like with_median(Like like) {
  like.middle = median(like.figures);
  return like;
}

std::string name_of_rank(const Health& health, int rank) {
  return fmt::format("rank {} on {}", rank, health.ranks[static_cast<std::size_t>(rank)].host);
}

Like of_ranks(const Health& health, const std::string& kind, double RankHealth::*figure) {
  Like like{kind, giga, figure == &RankHealth::product_rate ? "GFLOP/s" : "GB/s", false, {}, {}, 0};
  for (std::size_t rank = 0; rank < health.ranks.size(); ++rank) {
    like.whose.push_back(name_of_rank(health, static_cast<int>(rank)));
    like.figures.push_back(health.ranks[rank].*figure);
  }
  return with_median(std::move(like));
}

bool on_one_host(const Health& health, const PairHealth& pair) {
  return health.ranks[static_cast<std::size_t>(pair.first)].host ==
         health.ranks[static_cast<std::size_t>(pair.second)].host;
}

Like of_pairs(const Health& health, bool on_one) {
  Like like{on_one ? "messages on one host" : "messages between hosts", giga, "GB/s", false, {}, {}, 0};
  for (const PairHealth& pair : health.pairs) {
    if (on_one_host(health, pair) != on_one) continue;
    like.whose.push_back(fmt::format("{} and {}", name_of_rank(health, pair.first), name_of_rank(health, pair.second)));
    like.figures.push_back(pair.rate);
  }
  return with_median(std::move(like));
}

Like of_groups(const Health& health, const std::string& axis, const std::string& kind, double GroupHealth::*figure) {
  const bool latency = figure == &GroupHealth::latency;
  Like like{fmt::format("{} of {}", kind, axis), latency ? 1e-6 : giga, latency ? "us" : "GB/s", latency, {}, {}, 0};
  for (const GroupHealth& group : health.groups) {
    if (group.name != axis) continue;
    like.whose.push_back(fmt::format("{} of ranks {}", axis, ranges(group.ranks)));
    like.figures.push_back(group.*figure);
  }
  return with_median(std::move(like));
}

struct GroupFigure {
  const char* kind;
  double GroupHealth::*figure;
};
constexpr GroupFigure group_figures[] = {{"latency", &GroupHealth::latency},
                                         {"all-reduce", &GroupHealth::all_reduce},
                                         {"all-gather", &GroupHealth::all_gather},
                                         {"reduce-scatter", &GroupHealth::reduce_scatter},
                                         {"exchange", &GroupHealth::exchange}};

/// Axes in the order in which they were measured.
std::vector<std::string> axes_of(const Health& health) {
  std::vector<std::string> axes;
  for (const GroupHealth& group : health.groups) {
    if (axes.empty() || axes.back() != group.name) axes.push_back(group.name);
  }
  return axes;
}

std::vector<Like> all_likes(const Health& health) {
  std::vector<Like> likes{of_ranks(health, "product", &RankHealth::product_rate),
                          of_ranks(health, "copy", &RankHealth::copy_rate), of_pairs(health, true),
                          of_pairs(health, false)};
  for (const std::string& axis : axes_of(health)) {
    for (const auto& [kind, figure] : group_figures) likes.push_back(of_groups(health, axis, kind, figure));
  }
  return likes;
}

std::string devices(const Health& health) {
  std::map<std::string, std::vector<int>> ranks_of;
  for (std::size_t rank = 0; rank < health.ranks.size(); ++rank) {
    ranks_of[health.ranks[rank].device].push_back(static_cast<int>(rank));
  }
  std::string text;
  for (const auto& [device, ranks] : ranks_of) text += fmt::format("ranks {}: {}\n", ranges(ranks), device);
  return text;
}

std::string rank_table(const Health& health) {
  const Like product = of_ranks(health, "product", &RankHealth::product_rate),
             copy = of_ranks(health, "copy", &RankHealth::copy_rate);
  std::string text = fmt::format("\n{:>5}  {:<20} {:<12} {:<6} {:>21}  {:>14}\n", "rank", "host", "cores", "NUMA",
                                 fmt::format("{} product, GFLOP/s", name_of(health.precision)), "copy, GB/s");
  for (std::size_t rank = 0; rank < health.ranks.size(); ++rank) {
    const RankHealth& r = health.ranks[rank];
    text += fmt::format("{:>5}  {:<20} {:<12} {:<6} {:>14.1f} ({:>3.0f}%)  {:>7.1f} ({:>3.0f}%)\n", rank, r.host,
                        r.binding.cores, r.binding.numa_nodes, r.product_rate / giga, 100 * product.part(rank),
                        r.copy_rate / giga, 100 * copy.part(rank));
  }
  return text;
}

std::string pair_table(const Health& health) {
  if (health.pairs.empty()) return {};
  std::string text = "\nGB/s a direction between two ranks that send to each other at once:\n";
  constexpr std::size_t widest = 16;
  const std::size_t ranks = health.ranks.size();
  if (ranks <= widest) {
    std::vector<double> rate(ranks * ranks);
    for (const PairHealth& pair : health.pairs) {
      const auto a = static_cast<std::size_t>(pair.first), b = static_cast<std::size_t>(pair.second);
      rate[a * ranks + b] = rate[b * ranks + a] = pair.rate;
    }
    text += "     ";
    for (std::size_t b = 0; b < ranks; ++b) text += fmt::format(" {:>7}", b);
    for (std::size_t a = 0; a < ranks; ++a) {
      text += fmt::format("\n{:>5}", a);
      for (std::size_t b = 0; b < ranks; ++b) {
        text += a == b ? fmt::format(" {:>7}", "-") : fmt::format(" {:>7.2f}", rate[a * ranks + b] / giga);
      }
    }
    text += '\n';
  }
  for (const Like& like : {of_pairs(health, true), of_pairs(health, false)}) {
    if (like.figures.empty()) continue;
    const auto [slowest, fastest] = std::minmax_element(like.figures.begin(), like.figures.end());
    text +=
        fmt::format("  {}: {:.2f} to {:.2f}, median {:.2f}; slowest: {}\n", like.kind, *slowest / giga, *fastest / giga,
                    like.middle / giga, like.whose[static_cast<std::size_t>(slowest - like.figures.begin())]);
  }
  return text;
}

std::string group_table(const Health& health) {
  if (health.groups.empty()) return {};
  std::string text =
      fmt::format("\n{:<10} {:<24} {:>12} {:>17} {:>17} {:>17} {:>17}\n", "group", "ranks", "latency, us",
                  "all-reduce, GB/s", "all-gather, GB/s", "reduce-sc., GB/s", "exchange, GB/s");
  for (const GroupHealth& g : health.groups) {
    text += fmt::format("{:<10} {:<24} {:>12.1f} {:>17.2f} {:>17.2f} {:>17.2f} {:>17.2f}\n", g.name, ranges(g.ranks),
                        g.latency / 1e-6, g.all_reduce / giga, g.all_gather / giga, g.reduce_scatter / giga,
                        g.exchange / giga);
  }
  return text +
         "(GB/s that a rank sends: 2 (n - 1) / n of the tensor in an all-reduce, else (n - 1) / n, over the time)\n";
}

}  // namespace

std::string health_report(const Health& health) {
  std::set<std::string> hosts;
  for (const RankHealth& rank : health.ranks) hosts.insert(rank.host);
  return fmt::format("{} rank{} on {} host{}, messages and tensors of {}; (%) of the median of its like\n",
                     health.ranks.size(), health.ranks.size() == 1 ? "" : "s", hosts.size(),
                     hosts.size() == 1 ? "" : "s", human_bytes(health.message_bytes)) +
         devices(health) + rank_table(health) + pair_table(health) + group_table(health);
}

std::vector<std::string> ailments(const Health& health, double part) {
  std::vector<std::string> found;
  for (const Like& like : all_likes(health)) {
    for (std::size_t i = 0; i < like.figures.size(); ++i) {
      if (like.part(i) >= part) continue;
      found.push_back(fmt::format("{}: {} {:.4g} {}, {:.0f}% of the median's speed ({:.4g} {})", like.whose[i],
                                  like.kind, like.figures[i] / like.unit, like.unit_name, 100 * like.part(i),
                                  like.middle / like.unit, like.unit_name));
    }
  }
  for (std::size_t rank = 0; rank < health.ranks.size(); ++rank) {
    const RankHealth& r = health.ranks[rank];
    if (r.binding.near_device) continue;
    found.push_back(fmt::format(
        "{}: runs on NUMA node {}, its GPU is at node {}; bind ranks near their GPUs (mpirun --map-by numa, or Slurm's "
        "--gpu-bind=closest)",
        name_of_rank(health, static_cast<int>(rank)), r.binding.numa_nodes, r.device_numa_node));
  }
  return found;
}

}  // namespace llmtrain
