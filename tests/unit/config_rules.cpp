// SPDX-License-Identifier: Apache-2.0
/// Rules between keys, and rules with the number of ranks.
#include <algorithm>

#include "deck_helpers.hpp"
#include "llmtrain/config/check.hpp"

using namespace llmtrain;

namespace {

/// Message of the default deck with these overrides.
std::string with(const std::vector<std::string>& overrides, DeckChecks checks = {}) {
  return deck_error("{}", overrides, checks);
}

/// An override or several, and a part of the message that they get.
struct RuleCase {
  std::vector<std::string> overrides;
  std::string part;
};

const std::vector<RuleCase>& rule_cases() {
  static const std::vector<RuleCase> cases{
      {{"model.hidden=250"},
       "command line: model.hidden=250: model.hidden 250 is not divisible by model.heads 8: hidden may be 248 or 256"},
      {{"model.kv_heads=3"}, "model.heads 8 is not divisible by model.kv_heads 3: kv_heads may be 2 or 4"},
      {{"model.head_dim=33"},
       "the head dimension 33 (model.head_dim) is odd: rotary positions turn pairs, so it may be 32 or 34"},
      {{"model.hidden=8"}, "the head dimension 1 (model.hidden / model.heads) is odd"},
      {{"schedule.micro_batch=5"},
       "schedule.global_batch 32 is not divisible by schedule.micro_batch 5: global_batch may be 30 or 35, or "
       "micro_batch 4 or 8"},
      {{"parallel.tensor=3"}, "model.heads 8 is not divisible by parallel.tensor 3: tensor may be 2 or 4"},
      {{"parallel.tensor=3"},
       "schedule.micro_batch x model.seq_len = 4 x 256 tokens are not divisible by parallel.tensor 3"},
      {{"model.kv_heads=4", "model.heads=24", "model.hidden=768", "parallel.tensor=6"},
       "neither of model.kv_heads 4 and parallel.tensor 6 divides the other: tensor may be 4 or 8"},
      {{"parallel.tensor=16"}, "model.heads 8 is not divisible by parallel.tensor 16: tensor may be 8"},
      {{"parallel.tensor=5", "model.kv_heads=2", "model.heads=6", "model.hidden=384", "model.ffn=690"},
       "model.heads 6 is not divisible by parallel.tensor 5: tensor may be 2"},
      {{"parallel.tensor=8", "schedule.micro_batch=1", "model.seq_len=20"},
       "schedule.micro_batch x model.seq_len = 1 x 20 tokens are not divisible by parallel.tensor 8: tensor may be 4, "
       "or "
       "set parallel.sequence false"},
      {{"parallel.tensor=8", "model.ffn=700"},
       "model.ffn 700 is not divisible by parallel.tensor 8: ffn may be 696 or 704"},
      {{"parallel.pipeline=5"},
       "model.layers 4 is fewer than the 5 pipeline stages (parallel.pipeline x "
       "schedule.chunks): at most 4 stages: pipeline may be up to 4"},
      {{"parallel.pipeline=2", "schedule.kind=interleaved", "schedule.chunks=3"},
       "pipeline may be up to 1, or chunks "
       "up to 2"},
      {{"parallel.pipeline=2", "parallel.stage_layers=[1, 2]"},
       "parallel.stage_layers adds up to 3 but model.layers is 4: an even split is [2, 2]"},
      {{"parallel.pipeline=3", "parallel.count_head=true", "parallel.stage_layers=[1, 2]"},
       "parallel.stage_layers has 2 entries but there are 3 pipeline stages: an even split is [2, 2, 0]"},
      {{"parallel.pipeline=2", "parallel.stage_layers=[4]"}, "parallel.stage_layers has 1 entries but there are 2"},
      {{"schedule.chunks=2"}, "schedule.chunks 2 needs schedule.kind interleaved"},
      {{"schedule.kind=interleaved"}, "needs parallel.pipeline of 2 or more"},
      {{"run.steps=10"}, "optimizer.warmup_steps 20 is more than run.steps 10: set warmup_steps to at most 10"},
      {{"optimizer.decay_steps=15"}, "optimizer.warmup_steps 20 is more than optimizer.decay_steps 15"},
      {{"optimizer.lr=1e-5"}, "optimizer.min_lr 3e-5 is more than optimizer.lr 1e-5"},
      {{"optimizer.final_decay_steps=5"}, "belongs to optimizer.schedule wsd"},
      {{"run.stop_after=300"}, "run.stop_after 300 is beyond run.steps 200"},
      {{"precision={compute: fp64, reduce: bf16}"}, "precision.compute fp64 sets"},
      {{"precision={compute: fp32, gradients: bf16}"}, "go with precision.compute bf16"},
      {{"precision.moments=bf16", "optimizer.betas=[0.9, 0.999]"}, "with betas above 0.99 ([0.9, 0.999])"},
      {{"model.rope.scaling.low_freq_factor=2"}, "model.rope.scaling has no factor"},
      {{"schedule.global_batch=1e9", "run.steps=1e9", "model.seq_len=16777216"}, "is more than 2^63 tokens"},
      {{"run.max_walltime=1:00:00", "checkpoint.every=0"},
       "run.max_walltime 3600 saves before it stops, but checkpoint.every 0 saves nothing: set checkpoint.every"},
      {{"data.valid=[{prefix: a, weight: 2}]"}, "data.valid: 'a' has a weight, but each set is evaluated by itself"},
      {{"data.valid=[a, b, a]"}, "data.valid names 'a' twice"},
      {{"run.steps=-1"}, "run.steps: '-1' is out of range; it takes a whole number, 0 to 1e9 (steps)"},
  };
  return cases;
}

}  // namespace

TEST_CASE("rules between keys give the numbers and the nearest valid choice") {
  for (const RuleCase& c : rule_cases()) {
    CAPTURE(c.part);
    const std::string message = with(c.overrides);
    CAPTURE(message);
    CHECK(contains(message, c.part));
  }
  CHECK(with({}).empty());
  CHECK(with({"run.steps=0"}).empty());
  CHECK(with({"run.steps=20"}).empty());
  CHECK(with({"optimizer.lr=1e-5", "optimizer.schedule=constant"}).empty());
}

TEST_CASE("fp8 takes matrices whose rows are read 16 bytes at a time") {
  const RuleCase cases[] = {
      {{"precision={compute: fp32, linear: fp8}"}, "precision.linear fp8 goes with precision.compute bf16"},
      {{"precision.keep_fp8=true"}, "precision.keep_fp8 keeps copies that only precision.linear fp8 makes"},
      {{"precision.linear=fp8", "model.ffn=680"},
       "precision.linear fp8 needs a multiple of 16 as model.ffn, which is 680: it may be 672 or 688"},
      {{"precision.linear=fp8", "model.ffn=672", "parallel.tensor=4", "parallel.sequence=false"},
       "needs a multiple of 64 (16 x parallel.tensor) as model.ffn, which is 672: it may be 640 or 704"},
      {{"precision.linear=fp8", "model.seq_len=250", "schedule.micro_batch=1"},
       "as schedule.micro_batch x model.seq_len, which is 250: it may be 240 or 256"},
      {{"precision.linear=fp8", "model.hidden=264"}, "as model.hidden, which is 264"},
      {{"precision.linear=fp8", "model.heads=4", "model.kv_heads=4", "model.head_dim=18"},
       "as model.heads x head_dim, which is 72: it may be 64 or 80"},
      {{"precision.linear=fp8", "model.kv_heads=1", "model.head_dim=2"},
       "as (model.heads + 2 kv_heads) x head_dim, which is 20: it may be 16 or 32"}};
  for (const RuleCase& c : cases) {
    CAPTURE(c.part);
    CHECK(contains(with(c.overrides), c.part));
  }
  CHECK(with({"precision.linear=fp8"}).empty());
}

TEST_CASE("families take the parts that they are made of") {
  const auto changed = [](const std::string& key) { return with({"model.family=gpt", key}); };
  const DeckChecks four{.ranks = 4};
  CHECK(with({"model.family=gpt"}).empty());  // the family brings its parts
  CHECK(changed("model.activation=gelu").empty());
  CHECK(with({"model.preset=gpt2-124m", "precision.compute=fp32", "model.dropout=0.1"}, four).empty());
  CHECK(with({"model.preset=llama3.2-1b", "precision.compute=fp32"}, four).empty());
  CHECK(with({"model.preset=qwen2.5-1.5b", "precision.compute=fp32", "model.qk_norm=true"}, four).empty());
  CHECK(contains(changed("model.activation=silu"), "command line: model.activation=silu: model.family gpt needs"));
  CHECK(contains(changed("model.positions=rope"), "model.family gpt needs model.positions learned"));
  CHECK(contains(changed("model.qkv_bias=false"), "set model.qkv_bias true"));
  CHECK(contains(changed("model.qk_norm=true"), "model.qk_norm belongs to model.family llama"));
  CHECK(contains(changed("model.rope.scaling.factor=8"), "model.rope.scaling belongs to model.positions rope"));
  CHECK(contains(with({"model.activation=gelu"}), "belong to model.family gpt; llama needs silu"));
  CHECK(contains(with({"model.positions=learned"}), "belongs to model.family gpt; llama needs rope"));
  // A family over a preset of the other one: all its parts are found wrong at once, and each says where it came from.
  const std::string all = with({"model.preset=gpt2-124m", "model.family=llama"});
  CHECK(contains(all, "command line: model.preset=gpt2-124m (preset gpt2-124m)"));
  CHECK(std::count(all.begin(), all.end(), '\n') == 1);  // activation and positions
}

TEST_CASE("split takes three shares") {
  for (const std::string bad : {"'-1,1,0'", "'90,abc5,5'", "'0,0,0'", "'98,1,1,0'", "'98,2'", "''", "'98,,2'",
                                "'.nan,1,1'", "'1e999,1,1'", "'98;2;0'", "98", "'0x10,1,1'"}) {
    CAPTURE(bad);
    const std::string message = with({"data.split=" + bad});
    CHECK(contains(message, "data.split"));
    CHECK(message.starts_with("command line: data.split="));
  }
  CHECK(contains(with({"data.split='90,abc5,5'"}), "has 'abc5' in field 2, which is not a number"));
  CHECK(contains(with({"data.split='-1,1,0'"}), "has '-1' in field 1, which is negative"));
  std::string problem;
  CHECK(parse_split("969, 30, 1", problem).value()[0] == 969);
  CHECK(parse_split("99.9,0,0", problem).has_value());
  CHECK(contains(with({"data.split='0,1,0'", "data.train=[a]"}, {.ranks = 0, .data = true}), "nothing for training"));
}

TEST_CASE("rules with the number of ranks") {
  CHECK(with({}, {.ranks = 4}).empty());
  CHECK(contains(with({}, {.ranks = 3}),
                 "deck.yaml: schedule.global_batch 32 is not divisible by schedule.micro_batch x data = 4 x 3 = 12: "
                 "global_batch may be 24 or 36, or use 2 or 4 data-parallel ranks"));
  CHECK(contains(with({"parallel.tensor=2"}, {.ranks = 3}),
                 "3 ranks are not divisible by parallel.tensor x parallel.pipeline = 2 x 1 = 2: "
                 "start 2 or 4 ranks"));
  CHECK(
      contains(with({"parallel.shard=3"}, {.ranks = 4}), "parallel.shard 3 does not divide the 4 data-parallel ranks"));
  CHECK(contains(with({"parallel.shard=3"}, {.ranks = 4}), "shard may be 2 or 4"));
  const std::vector<std::string> interleaved{"schedule.kind=interleaved", "parallel.pipeline=4",
                                             "schedule.micro_batch=8"};
  CHECK(with(interleaved, {.ranks = 4}).empty());
  CHECK(contains(
      with(interleaved, {.ranks = 8}),
      "schedule.kind interleaved needs at least parallel.pipeline = 4 micro-batches a rank, but global_batch / "
      "(micro_batch x data) = 32 / (8 x 2) = 2: global_batch may be 64, or micro_batch 4, or use kind 1f1b"));
  CHECK(contains(
      with({"schedule.kind=interleaved", "parallel.pipeline=4", "schedule.global_batch=3", "schedule.micro_batch=1"},
           {.ranks = 4}),
      "(1 x 1) = 3: global_batch may be 4, or use kind 1f1b"));
}

TEST_CASE("what every choice of a feature allows") {
  const DeckChecks four{.ranks = 4};
  const std::vector<std::string> fine{"precision.compute=fp32"};
  CHECK(with(fine, four).empty());
  CHECK(with({"precision.compute=fp64"}, four).empty());
  CHECK(with({"precision.compute=fp32", "schedule.kind=gpipe", "optimizer.schedule=wsd", "optimizer.warmup=log",
              "parallel.shard=4", "parallel.zero=0"},
             four)
            .empty());
  for (const char* zero : {"parallel.zero=2", "parallel.zero=3"}) CHECK(with({zero, "parallel.shard=2"}, four).empty());
  CHECK(with({}, four).empty());
  CHECK(with({"schedule.recompute=block"}, four).empty());
  CHECK(with({"schedule.recompute=selective", "schedule.recompute_modules=[mlp]"}, four).empty());
  for (const char* other :
       {"precision={gradients: bf16, reduce: bf16, moments: bf16}", "data.order=shuffled", "data.document_mask=true",
        "data.tokenizer=t.json", "checkpoint.async=true", "data.train=[a, b]"})
    CHECK(with({other}, four).empty());
  for (const std::string kind : {"gpipe", "1f1b", "interleaved"}) {
    CHECK(with({"precision.compute=fp32", "schedule.kind=" + kind, "parallel.pipeline=2"}, four).empty());
  }
}

TEST_CASE("training needs data") {
  CHECK(contains(with({}, {.ranks = 1, .data = true}), "data.train names no dataset"));
  CHECK(with({"data.train=[a]"}, {.ranks = 1, .data = true}).empty());
  CHECK(with({"data.train=[a, b]"}).empty());
  CHECK(with({"data.train=[{prefix: a, weight: 1}, {prefix: b, weight: 3}]"}).empty());
  CHECK(contains(with({"data.train=[{prefix: a, weight: 1}, b]"}), "'b' has no weight, but others have"));
}

TEST_CASE("a rule about a key that could not be read stays silent") {
  const std::string message = with({"model.heads=x", "model.hidden=250"});
  CHECK(std::count(message.begin(), message.end(), '\n') == 0);
}
