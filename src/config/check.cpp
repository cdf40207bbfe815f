// SPDX-License-Identifier: Apache-2.0
/// Rules between keys that need no number of ranks.
#include "llmtrain/config/check.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <string>

#include "llmtrain/base/error.hpp"
#include "llmtrain/base/fp8.hpp"
#include "llmtrain/config/numbers.hpp"
#include "rules.hpp"

namespace llmtrain {
namespace {

void check_attention(const Deck& deck, Rules& rules) {
  const ModelConfig& m = deck.model;
  rules.rule(m.heads % m.kv_heads == 0, {"model.kv_heads", "model.heads"},
             "model.heads {} is not divisible by model.kv_heads {}: kv_heads may be {}", m.heads, m.kv_heads,
             nearest_divisors(m.heads, m.kv_heads));
  const bool splits = m.head_dim != 0 || m.hidden % m.heads == 0;
  rules.rule(splits, {"model.hidden", "model.heads", "model.head_dim"},
             "model.hidden {} is not divisible by model.heads {}: hidden may be {}, or heads {}, or set model.head_dim",
             m.hidden, m.heads, nearest_multiples(m.hidden, m.heads), nearest_divisors(m.hidden, m.heads));
  const std::int64_t head_dim = m.head_dim != 0 ? m.head_dim : m.hidden / m.heads;
  rules.rule(!splits || m.positions != Positions::rope || (head_dim % 2 == 0 && head_dim > 0),
             {"model.head_dim", "model.hidden", "model.heads"},
             "the head dimension {} ({}) is odd: rotary positions turn pairs, so it may be {}", head_dim,
             m.head_dim != 0 ? "model.head_dim" : "model.hidden / model.heads", nearest_multiples(head_dim, 2));
  const RopeScaling& s = m.rope.scaling;
  const RopeScaling defaults;
  const bool given = s.low_freq_factor != defaults.low_freq_factor || s.high_freq_factor != defaults.high_freq_factor ||
                     s.original_max_position != defaults.original_max_position;
  rules.rule(s.factor != 0 || !given,
             {"model.rope.scaling.low_freq_factor", "model.rope.scaling.high_freq_factor",
              "model.rope.scaling.original_max_position", "model.rope.scaling.factor"},
             "model.rope.scaling has no factor: set factor, or leave scaling out");
  rules.rule(s.factor == 0 || s.low_freq_factor < s.high_freq_factor,
             {"model.rope.scaling.high_freq_factor", "model.rope.scaling.low_freq_factor"},
             "model.rope.scaling.low_freq_factor {} must be less than high_freq_factor {}",
             format_real(s.low_freq_factor), format_real(s.high_freq_factor));
}

/// What each family is made of; other mixtures have no code.
void check_family(const ModelConfig& m, Rules& rules) {
  const bool gpt = m.family == Family::gpt;
  rules.rule(!gpt || m.activation != Activation::silu, {"model.activation", "model.family"},
             "model.family gpt needs model.activation gelu_tanh (as GPT-2) or gelu");
  rules.rule(gpt || m.activation == Activation::silu, {"model.activation", "model.family"},
             "model.activation gelu and gelu_tanh belong to model.family gpt; llama needs silu");
  rules.rule(!gpt || m.positions == Positions::learned, {"model.positions", "model.family"},
             "model.family gpt needs model.positions learned");
  rules.rule(gpt || m.positions == Positions::rope, {"model.positions", "model.family"},
             "model.positions learned belongs to model.family gpt; llama needs rope");
  rules.rule(!gpt || m.qkv_bias, {"model.qkv_bias", "model.family"},
             "model.family gpt has biases on all its linear layers: set model.qkv_bias true");
  rules.rule(!gpt || !m.qk_norm, {"model.qk_norm", "model.family"},
             "model.qk_norm belongs to model.family llama; set it false");
  rules.rule(m.positions == Positions::rope || m.rope.scaling.factor == 0,
             {"model.rope.scaling.factor", "model.positions"},
             "model.rope.scaling belongs to model.positions rope; leave it out");
}

void check_batches(const Deck& deck, Rules& rules) {
  const ScheduleConfig& s = deck.schedule;
  rules.rule(
      s.global_batch % s.micro_batch == 0, {"schedule.global_batch", "schedule.micro_batch"},
      "schedule.global_batch {} is not divisible by schedule.micro_batch {}: global_batch may be {}, or micro_batch {}",
      s.global_batch, s.micro_batch, nearest_multiples(s.global_batch, s.micro_batch),
      nearest_divisors(s.global_batch, s.micro_batch));
  std::int64_t sequences = 0;
  std::int64_t tokens = 0;
  const bool overflow = __builtin_mul_overflow(deck.run.steps, s.global_batch, &sequences) ||
                        __builtin_mul_overflow(sequences, deck.model.seq_len, &tokens);
  rules.rule(!overflow, {"run.steps", "schedule.global_batch", "model.seq_len"},
             "run.steps {} x schedule.global_batch {} x model.seq_len {} is more than 2^63 tokens", deck.run.steps,
             s.global_batch, deck.model.seq_len);
  rules.rule(s.chunks == 1 || s.kind == ScheduleKind::interleaved, {"schedule.chunks", "schedule.kind"},
             "schedule.chunks {} needs schedule.kind interleaved", s.chunks);
  rules.rule(s.recompute != Recompute::selective || !s.recompute_modules.empty(),
             {"schedule.recompute_modules", "schedule.recompute"},
             "schedule.recompute selective needs at least one name in schedule.recompute_modules");
}

/// Whether so many tensor ranks can cut attention, MLP and, under sequence parallelism, the tokens.
bool splits_over(const Deck& deck, std::int64_t tensor) {
  const ModelConfig& m = deck.model;
  const bool kv = m.kv_heads % tensor == 0 || tensor % m.kv_heads == 0;
  const bool tokens = !deck.parallel.sequence || deck.schedule.micro_batch * m.seq_len % tensor == 0;
  return kv && tokens && m.heads % tensor == 0 && m.ffn % tensor == 0;
}

/// "2 or 4": the nearest numbers of tensor ranks below and above the deck's that can.
std::string nearest_tensor(const Deck& deck) {
  const ModelConfig& m = deck.model;
  const auto can = [&](std::int64_t tensor) { return splits_over(deck, tensor); };
  std::int64_t below = std::min<std::int64_t>(deck.parallel.tensor, m.heads);
  while (below > 1 && !can(below)) --below;
  std::int64_t above = deck.parallel.tensor;
  while (above <= m.heads && !can(above)) ++above;
  return above <= m.heads ? fmt::format("{} or {}", below, above) : std::to_string(below);
}

void check_split_of_model(const Deck& deck, Rules& rules) {
  const ModelConfig& m = deck.model;
  const ParallelConfig& p = deck.parallel;
  const std::int64_t tokens = deck.schedule.micro_batch * m.seq_len;
  rules.rule(!p.sequence || tokens % p.tensor == 0, {"parallel.tensor", "schedule.micro_batch", "model.seq_len"},
             "schedule.micro_batch x model.seq_len = {} x {} tokens are not divisible by parallel.tensor {}: tensor "
             "may be {}, or "
             "set parallel.sequence false",
             deck.schedule.micro_batch, m.seq_len, p.tensor, nearest_tensor(deck));
  rules.rule(m.heads % p.tensor == 0, {"parallel.tensor", "model.heads"},
             "model.heads {} is not divisible by parallel.tensor {}: tensor may be {}", m.heads, p.tensor,
             nearest_tensor(deck));
  rules.rule(m.kv_heads % p.tensor == 0 || p.tensor % m.kv_heads == 0, {"parallel.tensor", "model.kv_heads"},
             "neither of model.kv_heads {} and parallel.tensor {} divides the other: tensor may be {}", m.kv_heads,
             p.tensor, nearest_tensor(deck));
  rules.rule(m.ffn % p.tensor == 0, {"parallel.tensor", "model.ffn"},
             "model.ffn {} is not divisible by parallel.tensor {}: ffn may be {}", m.ffn, p.tensor,
             nearest_multiples(m.ffn, p.tensor));
  const bool interleaved = deck.schedule.kind == ScheduleKind::interleaved;
  rules.rule(!interleaved || p.pipeline > 1, {"schedule.kind", "parallel.pipeline"},
             "schedule.kind interleaved needs parallel.pipeline of 2 or more");
  const std::int64_t stages = static_cast<std::int64_t>(p.pipeline) * (interleaved ? deck.schedule.chunks : 1);
  const std::int64_t units = m.layers + (p.count_embedding ? 1 : 0) + (p.count_head ? 1 : 0);
  rules.rule(units >= stages, {"parallel.pipeline", "model.layers", "schedule.chunks"},
             "model.layers {} is fewer than the {} pipeline stages (parallel.pipeline x schedule.chunks): at most {} "
             "stages: pipeline may be up to {}{}",
             m.layers, stages, units, units / (interleaved ? deck.schedule.chunks : 1),
             interleaved ? fmt::format(", or chunks up to {}", units / p.pipeline) : "");
  if (p.stage_layers.empty() || units < stages) return;
  const auto given = static_cast<std::int64_t>(p.stage_layers.size());
  const std::string even = fmt::format("[{}]", fmt::join(even_layers(m.layers, p, stages), ", "));
  const std::int64_t sum = std::accumulate(p.stage_layers.begin(), p.stage_layers.end(), std::int64_t{0});
  rules.rule(given == stages, {"parallel.stage_layers", "parallel.pipeline", "schedule.chunks"},
             "parallel.stage_layers has {} entries but there are {} pipeline stages: an even split is {}", given,
             stages, even);
  rules.rule(sum == m.layers, {"parallel.stage_layers", "model.layers"},
             "parallel.stage_layers adds up to {} but model.layers is {}: an even split is {}", sum, m.layers, even);
}

/// All extents of the blocks' matrices, as cut over tensor ranks, must be multiples of fp8_multiple.
void check_fp8(const Deck& deck, Rules& rules) {
  if (deck.precision.linear != LinearProducts::fp8) return;
  const ModelConfig& m = deck.model;
  const ParallelConfig& p = deck.parallel;
  const auto fits = [&](std::string_view what, std::int64_t n, std::int64_t cut,
                        std::initializer_list<std::string_view> keys) {
    const std::int64_t multiple = fp8_multiple * cut;
    rules.rule(
        n % multiple == 0, keys,
        "precision.linear fp8 needs a multiple of {}{} as {}, which is {}: it may be {}, or leave precision.linear out",
        multiple, cut > 1 ? fmt::format(" ({} x parallel.tensor)", fp8_multiple) : "", what, n,
        nearest_multiples(n, multiple));
  };
  const std::int64_t tensor = p.tensor, head_dim = m.head_dim != 0 ? m.head_dim : m.hidden / m.heads;
  fits("model.hidden", m.hidden, 1, {"model.hidden", "precision.linear"});
  fits("schedule.micro_batch x model.seq_len", deck.schedule.micro_batch * m.seq_len, p.sequence ? tensor : 1,
       {"schedule.micro_batch", "model.seq_len", "parallel.tensor", "precision.linear"});
  fits("model.ffn", m.ffn, tensor, {"model.ffn", "parallel.tensor", "precision.linear"});
  const std::int64_t kv_heads = std::max<std::int64_t>(m.kv_heads, tensor);  // as held, some more than once
  fits("model.heads x head_dim", m.heads * head_dim, tensor, {"model.heads", "parallel.tensor", "precision.linear"});
  fits("(model.heads + 2 kv_heads) x head_dim", (m.heads + 2 * kv_heads) * head_dim, tensor,
       {"model.kv_heads", "parallel.tensor", "precision.linear"});
}

void check_optimizer(const Deck& deck, Rules& rules) {
  const OptimizerConfig& o = deck.optimizer;
  const bool constant = o.schedule == LrSchedule::constant;
  rules.rule(constant || o.min_lr <= o.lr, {"optimizer.min_lr", "optimizer.lr"},
             "optimizer.min_lr {} is more than optimizer.lr {}: set min_lr to at most lr (a tenth of it is common)",
             format_real(o.min_lr), format_real(o.lr));
  const std::int64_t horizon = o.decay_steps != 0 ? o.decay_steps : deck.run.steps;
  const std::string_view horizon_key = o.decay_steps != 0 ? "optimizer.decay_steps" : "run.steps";
  rules.rule(horizon == 0 || o.warmup_steps <= horizon, {"optimizer.warmup_steps", horizon_key},
             "optimizer.warmup_steps {} is more than {} {}: set warmup_steps to at most {}", o.warmup_steps,
             horizon_key, horizon, horizon);
  const bool wsd = o.schedule == LrSchedule::wsd;
  rules.rule(wsd || o.final_decay_steps == 0, {"optimizer.final_decay_steps", "optimizer.schedule"},
             "optimizer.final_decay_steps {} belongs to optimizer.schedule wsd", o.final_decay_steps);
  rules.rule(!wsd || horizon == 0 || o.warmup_steps + o.final_decay_steps <= horizon,
             {"optimizer.final_decay_steps", "optimizer.warmup_steps", horizon_key},
             "optimizer.warmup_steps {} + optimizer.final_decay_steps {} is more than {} {}", o.warmup_steps,
             o.final_decay_steps, horizon_key, horizon);
  rules.rule(deck.run.max_walltime == 0 || deck.checkpoint.every > 0, {"run.max_walltime", "checkpoint.every"},
             "run.max_walltime {} saves before it stops, but checkpoint.every 0 saves nothing: set checkpoint.every",
             format_real(deck.run.max_walltime));
  rules.rule(deck.run.stop_after <= deck.run.steps, {"run.stop_after", "run.steps"},
             "run.stop_after {} is beyond run.steps {}", deck.run.stop_after, deck.run.steps);
  const PrecisionConfig& p = deck.precision;
  const bool half = p.gradients != Storage16::fp32 || p.reduce != Storage16::fp32 || p.moments != Storage16::fp32;
  rules.rule(p.compute != Compute::fp64 || !half,
             {"precision.gradients", "precision.reduce", "precision.moments", "precision.compute"},
             "precision.compute fp64 sets gradients, reduce and moments too: leave them out");
  rules.rule(p.compute != Compute::fp32 || (p.gradients == Storage16::fp32 && p.reduce == Storage16::fp32),
             {"precision.gradients", "precision.reduce", "precision.compute"},
             "precision.gradients and reduce bf16 go with precision.compute bf16: set it, or leave them fp32");
  rules.rule(p.linear == LinearProducts::compute || p.compute == Compute::bf16,
             {"precision.linear", "precision.compute"},
             "precision.linear fp8 goes with precision.compute bf16: set it, or leave linear out");
  rules.rule(!p.keep_fp8 || p.linear == LinearProducts::fp8, {"precision.keep_fp8", "precision.linear"},
             "precision.keep_fp8 keeps copies that only precision.linear fp8 makes: set it, or leave keep_fp8 out");
  // A bf16 average moves only if its change is more than 2^-9 of it.
  rules.rule(
      p.moments == Storage16::fp32 || std::max(o.betas[0], o.betas[1]) <= 0.99,
      {"precision.moments", "optimizer.betas"},
      "precision.moments bf16 rounds away the changes of moments with betas above 0.99 ([{}, {}]): lower them, or "
      "set precision.moments fp32",
      format_real(o.betas[0]), format_real(o.betas[1]));
}

void check_data_keys(const Deck& deck, Rules& rules) {
  std::string problem;
  rules.rule(parse_split(deck.data.split, problem).has_value(), {"data.split"},
             "data.split '{}' {}: write three shares, e.g. \"98,2,0\"", deck.data.split, problem);
  const auto& train = deck.data.train;
  const auto unweighted =
      std::find_if(train.begin(), train.end(), [](const DataSource& set) { return set.weight == 0; });
  rules.rule(unweighted == train.end() ||
                 std::all_of(train.begin(), train.end(), [](const DataSource& set) { return set.weight == 0; }),
             {"data.train"}, "data.train: '{}' has no weight, but others have: give every set one, or none",
             unweighted == train.end() ? "" : unweighted->prefix);
  std::set<std::string> seen;
  for (const DataSource& set : deck.data.valid) {
    rules.rule(set.weight == 0, {"data.valid"},
               "data.valid: '{}' has a weight, but each set is evaluated by itself: leave weight out", set.prefix);
    rules.rule(seen.insert(set.prefix).second, {"data.valid"}, "data.valid names '{}' twice", set.prefix);
  }
  const TokenizerConfig& t = deck.data.tokenizer;
  rules.rule(t.file != "bytes" || (t.pattern.empty() && t.special.empty() && t.eod.empty()), {"data.tokenizer"},
             "data.tokenizer bytes takes no pattern, special or eod: name the tokenizer's file");
}

std::int64_t share_of_training(const Deck& deck) {
  std::string problem;
  const auto shares = parse_split(deck.data.split, problem);
  return shares && shares->at(0) == 0 && deck.data.valid.empty() ? 0 : 1;
}

}  // namespace

std::vector<std::int64_t> even_layers(std::int64_t layers, const ParallelConfig& parallel, std::int64_t pieces) {
  const std::int64_t embedding = parallel.count_embedding ? 1 : 0, head = parallel.count_head ? 1 : 0;
  const std::int64_t units = layers + embedding + head;
  std::vector<std::int64_t> split;
  for (std::int64_t i = 0; i < pieces; ++i) split.push_back(units / pieces + (i < units % pieces ? 1 : 0));
  split.front() -= embedding;
  split.back() -= head;
  return split;
}

std::optional<std::array<double, 3>> parse_split(std::string_view split, std::string& problem) {
  std::array<double, 3> shares{};
  std::size_t count = 0;
  double sum = 0;
  for (std::size_t at = 0; at <= split.size(); ++count) {
    const std::size_t end = std::min(split.find(',', at), split.size());
    std::string_view field = split.substr(at, end - at);
    while (field.starts_with(' ')) field.remove_prefix(1);
    while (field.ends_with(' ')) field.remove_suffix(1);
    const Parsed<double> share = parse_real(field);
    if (!share || share.value < 0) {
      problem = fmt::format("has '{}' in field {}, which {}", field, count + 1, share ? "is negative" : share.problem);
      return std::nullopt;
    }
    if (count < 3) shares[count] = share.value;
    sum += share.value;
    at = end + 1;
  }
  problem = count != 3 ? fmt::format("has {} fields, not 3", count) : "";
  if (count == 3 && !(sum > 0)) problem = "is all zero";
  if (count == 3 && sum > 1e300) problem = "has numbers that are too large";
  return problem.empty() ? std::optional(shares) : std::nullopt;
}

void check_values(const Deck& deck, const DeckOrigin& origin, Findings& findings) {
  Rules rules(origin, findings);
  check_family(deck.model, rules);
  check_attention(deck, rules);
  check_batches(deck, rules);
  check_split_of_model(deck, rules);
  check_fp8(deck, rules);
  check_optimizer(deck, rules);
  check_data_keys(deck, rules);
}

void check_data(const Deck& deck, const DeckOrigin& origin, Findings& findings) {
  Rules rules(origin, findings);
  rules.rule(
      !deck.data.train.empty(), {"data.train"},
      "data.train names no dataset: set it to the prefix that llmtrain preprocess wrote, e.g. [corpus_text_document]");
  rules.rule(share_of_training(deck) != 0, {"data.split"},
             "data.split '{}' leaves nothing for training: its first share is 0", deck.data.split);
}

void check_deck(const Deck& deck, const DeckChecks& checks, const DeckOrigin& origin, Findings& findings) {
  check_values(deck, origin, findings);
  if (checks.ranks > 0) check_ranks(deck, checks.ranks, origin, findings);
  if (checks.data) check_data(deck, origin, findings);
}

void check_deck(const Deck& deck, const DeckChecks& checks) {
  Findings findings;
  check_deck(deck, checks, DeckOrigin{}, findings);
  findings.throw_if_any();
}

}  // namespace llmtrain
