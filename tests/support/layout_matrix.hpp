// SPDX-License-Identifier: Apache-2.0
/// All layouts of a model on so many ranks, and a few of them in which every pair of choices occurs.
#pragma once

#include <algorithm>
#include <array>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "support/gpt.hpp"
#include "support/layouts.hpp"

namespace llmtrain {

struct NamedDeck {
  std::string name;
  Deck deck;
};

/// Three models of eight layers whose global batch of 24 sequences stays the same in every layout.
inline std::vector<NamedDeck> matrix_models() {
  Deck deck;
  deck.run.steps = 20;
  deck.data.seed = deck.run.seed;
  deck.data.samples = 20 * 24;
  deck.schedule.global_batch = 24;
  deck.schedule.micro_batch = 24;
  deck.optimizer.lr = 1e-3;
  deck.optimizer.min_lr = 1e-4;
  deck.optimizer.warmup_steps = 4;
  ModelConfig& m = deck.model;
  m.layers = 8;
  m.hidden = 32;
  m.heads = 8;
  m.kv_heads = 2;
  m.head_dim = 4;
  m.ffn = 48;
  m.seq_len = 8;
  m.vocab = 61;
  m.vocab_multiple = 16;
  m.init_std = 0.1;
  std::vector<NamedDeck> models{{"llama, grouped queries, untied", deck}};
  m.kv_heads = 1;
  m.tied = true;
  models.push_back({"llama, one kv head, tied", deck});
  m.heads = 12;  // for 3 and 6 tensor ranks
  m.seq_len = 12;
  m.vocab = 257;
  m.dropout = 0.1;
  m = as_gpt(m);
  models.push_back({"gpt, tied, dropout, vocabulary 257", deck});
  return models;
}

/// One cell of the matrix.
struct Layout {
  int ranks, tensor, pipeline, shard, zero;  // shard 0: all of data
  bool sequence;
  ScheduleKind kind;
  int chunks;
  Recompute recompute;
  int micro_batches;

  int data() const { return ranks / (tensor * pipeline); }

  Deck apply(Deck deck) const {
    deck.parallel.tensor = tensor;
    deck.parallel.pipeline = pipeline;
    deck.parallel.shard = shard;
    deck.parallel.zero = zero;
    deck.parallel.sequence = sequence;
    deck.parallel.persistence = 0;  // or these small models would stay whole under ZeRO-3
    deck.schedule.kind = kind;
    deck.schedule.chunks = chunks;
    deck.schedule.recompute = recompute;
    deck.schedule.micro_batch = deck.schedule.global_batch / (data() * micro_batches);
    return deck;
  }
  /// The choices that pairs are made of.
  std::array<int, 10> choices() const {
    return {tensor,
            pipeline,
            data(),
            shard == 0 ? data() : shard,
            zero,
            static_cast<int>(sequence),
            static_cast<int>(kind),
            chunks,
            static_cast<int>(recompute),
            micro_batches};
  }
};

inline std::vector<int> divisors(int n) {
  std::vector<int> all;
  for (int d = 1; d <= n; ++d) {
    if (n % d == 0) all.push_back(d);
  }
  return all;
}

/// Every layout of the deck on `ranks` ranks that its rules allow. What makes no difference is not varied: sequence at
/// tensor 1, schedules at pipeline 1, chunks but of interleaved. Micro-batches: the fewest that the schedule takes, and
/// three times as many.
inline std::vector<Layout> all_layouts(const Deck& deck, int ranks) {
  std::vector<Layout> layouts;
  const auto add = [&](Layout layout) {
    const std::int64_t parts = layout.data() * layout.micro_batches;
    if (deck.schedule.global_batch % parts == 0 && fits(layout.apply(deck), ranks)) layouts.push_back(layout);
  };
  for (const int tensor : divisors(ranks)) {
    for (const int pipeline : divisors(ranks / tensor)) {
      const int data = ranks / tensor / pipeline;
      std::vector<std::pair<ScheduleKind, int>> schedules{{ScheduleKind::one_f_one_b, 1}};
      if (pipeline > 1) schedules.insert(schedules.end(), {{ScheduleKind::gpipe, 1}, {ScheduleKind::interleaved, 2}});
      for (const auto& [kind, chunks] : schedules) {
        for (const int shards : divisors(data)) {
          for (int zero = 0; zero <= 3; ++zero) {
            for (int sequence = 0; sequence <= (tensor > 1 ? 1 : 0); ++sequence) {
              for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::block}) {
                for (const int times : {1, 3}) {
                  add({ranks, tensor, pipeline, shards == data ? 0 : shards, zero, sequence == 1, kind, chunks,
                       recompute, pipeline * times});
                }
              }
            }
          }
        }
      }
    }
  }
  return layouts;
}

/// Some of `all` in which every pair of choices that occurs anywhere occurs; greedy, so in no sense the fewest.
inline std::vector<Layout> pairwise_cover(const std::vector<Layout>& all) {
  using Pair = std::array<int, 4>;  // choice, value, choice, value
  const auto pairs_of = [](const Layout& layout) {
    const auto choices = layout.choices();
    std::vector<Pair> pairs;
    for (std::size_t i = 0; i < choices.size(); ++i) {
      for (std::size_t j = i + 1; j < choices.size(); ++j) {
        pairs.push_back({static_cast<int>(i), choices[i], static_cast<int>(j), choices[j]});
      }
    }
    return pairs;
  };
  std::set<Pair> open;
  std::vector<std::vector<Pair>> pairs;
  for (const Layout& layout : all) {
    pairs.push_back(pairs_of(layout));
    open.insert(pairs.back().begin(), pairs.back().end());
  }
  std::vector<Layout> cover;
  while (!open.empty()) {
    std::size_t best = 0;
    std::ptrdiff_t most = -1;
    for (std::size_t i = 0; i < all.size(); ++i) {
      const auto news =
          std::count_if(pairs[i].begin(), pairs[i].end(), [&](const Pair& p) { return open.contains(p); });
      if (news > most) std::tie(best, most) = std::pair(i, news);
    }
    for (const Pair& pair : pairs[best]) open.erase(pair);
    cover.push_back(all[best]);
  }
  return cover;
}

/// All of them, or what MATRIX_PART=k and MATRIX_PARTS=n in the environment say: every n-th from the k-th on.
inline std::vector<Layout> matrix_part(const std::vector<Layout>& all) {
  const auto parts = static_cast<std::size_t>(from_environment("MATRIX_PARTS", 1));
  std::vector<Layout> chosen;
  for (auto i = static_cast<std::size_t>(from_environment("MATRIX_PART", 0)); i < all.size(); i += parts) {
    chosen.push_back(all[i]);
  }
  return chosen;
}

/// Compares each layout with one rank: step 1 in fp64, and 20 steps in fp32.
inline void check_layouts(LayoutJob& job, const Deck& model, const std::vector<Layout>& layouts) {
  for (const auto& [compute, steps] : {std::pair(Compute::fp64, 1), std::pair(Compute::fp32, 20)}) {
    Deck deck = model;
    deck.precision.compute = compute;
    const LayoutNumbers reference = job.run(serial(deck), 1, steps);
    for (const Layout& layout : layouts) {
      job.check_agreement(job.run(layout.apply(deck), layout.ranks, steps), reference, Agreement::bound);
    }
    if (job.world.rank() == 0) std::printf("%s\n", job.worst().c_str()), std::fflush(stdout);
  }
}

}  // namespace llmtrain
