// SPDX-License-Identifier: Apache-2.0
/// Megatron-LM's arguments: every row of the table is accounted for, and the rules give the numbers Megatron works with.
#include <doctest/doctest.h>

#include <algorithm>
#include <set>

#include "llmtrain/base/error.hpp"
#include "llmtrain/config/key.hpp"
#include "llmtrain/config/read.hpp"
#include "llmtrain/importers/importers.hpp"

using namespace llmtrain;

namespace {

/// A command line that is complete; `more` comes after it.
DeckDraft draft_of(std::vector<std::string> more, std::int64_t ranks = 8, std::int64_t layers = 12) {
  std::vector<std::string> words{"--num-layers",
                                 std::to_string(layers),
                                 "--hidden-size",
                                 "96",
                                 "--num-attention-heads",
                                 "4",
                                 "--seq-length",
                                 "64",
                                 "--max-position-embeddings",
                                 "64",
                                 "--micro-batch-size",
                                 "2",
                                 "--lr",
                                 "1e-3",
                                 "--train-iters",
                                 "1000"};
  words.insert(words.end(), more.begin(), more.end());
  return import_megatron(words, "test", {ranks, {}});
}

std::string value(const DeckDraft& draft, std::string_view key) {
  const auto found = draft.values().find(key);
  return found == draft.values().end() ? "absent" : found->second.value;
}

bool noted(const DeckDraft& draft, Fate fate, std::string_view shown) {
  const auto& notes = draft.notes();
  return std::any_of(notes.begin(), notes.end(), [&](const ImportNote& note) {
    return note.fate == fate && note.shown.find(shown) != std::string::npos;
  });
}

Fate expected(const ImportRow& row) {
  switch (row.kind) {
    case RowKind::key:
    case RowKind::rule: return Fate::translated;
    case RowKind::not_applicable: return Fate::not_applicable;
    case RowKind::unsupported: return Fate::unsupported;
  }
  return Fate::unknown;
}

}  // namespace

TEST_CASE("every argument of the table is reported as its row says") {
  std::set<std::string_view> names;
  for (const auto rows : megatron_rows()) {
    for (const ImportRow& row : rows) {
      CAPTURE(row.name);
      CHECK(names.insert(row.name).second);
      CHECK_FALSE(row.text.empty());
      if (row.kind == RowKind::key) CHECK(find_key(row.text) != nullptr);
      std::vector<std::string> words{"--" + std::string(row.name)};
      if (row.takes != Takes::nothing) words.emplace_back(row.usual.starts_with('1') ? "2" : "1");
      const DeckDraft draft = draft_of(words, 8, 1);
      const auto& notes = draft.notes();
      CHECK(std::count_if(notes.begin(), notes.end(), [&](const ImportNote& note) {
              return note.name == row.name && note.fate == expected(row);
            }) >= 1);
      const bool unsupported = row.kind == RowKind::unsupported && !row.usual.empty();
      if (unsupported) CHECK(noted(draft_of({words[0], std::string(row.usual)}), Fate::not_applicable, words[0]));
    }
  }
  CHECK(names.size() > 500);
}

TEST_CASE("the deck of a command line can be read, and holds what it says") {
  const DeckDraft draft = draft_of({"--swiglu", "--normalization", "RMSNorm", "--position-embedding-type=rope",
                                    "--disable-bias-linear", "--use-rope-scaling", "--bf16"});
  const Deck deck = parse_deck(draft.text(), "deck");
  CHECK(deck.model.family == Family::llama);
  CHECK(deck.model.ffn == 256);  // 8/3 x 96 = 256
  CHECK(deck.model.rope.theta == 10000);
  CHECK(deck.model.rope.scaling.factor == 8);
  CHECK(deck.model.kv_heads == 4);
  CHECK_FALSE(deck.model.qkv_bias);
  CHECK(deck.model.tied);
  CHECK(deck.schedule.global_batch == 16);  // 2 x 8 data ranks
  CHECK(deck.optimizer.schedule == LrSchedule::linear);
  CHECK(deck.precision.compute == Compute::bf16);
  CHECK(noted(draft, Fate::unsupported, "--attention-dropout absent"));
}

TEST_CASE("fp8 goes to linear layers, and what is different there is listed") {
  const DeckDraft same =
      draft_of({"--bf16", "--fp8-format", "hybrid", "--fp8-recipe", "tensorwise", "--keep-fp8-transpose-cache"});
  CHECK(value(same, "precision.keep_fp8") == "true");
  CHECK(value(same, "precision.linear") == "fp8");
  CHECK_FALSE(noted(same, Fate::unsupported, "--fp8"));
  const DeckDraft other = draft_of({"--bf16", "--fp8-format", "e4m3", "--no-fp8-wgrad"});
  CHECK(value(other, "precision.linear") == "fp8");
  for (const char* shown : {"--fp8-format e4m3", "--fp8-recipe absent", "--no-fp8-wgrad"}) {
    CHECK(noted(other, Fate::unsupported, shown));
  }
  CHECK(value(draft_of({"--bf16"}), "precision.linear") == "absent");
  const DeckDraft wide = draft_of({"--fp8-format", "hybrid"});
  CHECK(value(wide, "precision.linear") == "absent");
  CHECK(noted(wide, Fate::unsupported, "--fp8-format hybrid"));
}

TEST_CASE("traits that no family has are listed") {
  const DeckDraft llama = draft_of({"--swiglu", "--use-rotary-position-embeddings", "--add-qkv-bias"});
  CHECK(value(llama, "model.family") == "llama");
  CHECK(noted(llama, Fate::unsupported, "--normalization absent"));
  CHECK(noted(llama, Fate::unsupported, "--disable-bias-linear absent"));
  const DeckDraft gpt = draft_of({"--position-embedding-type", "none", "--no-bias-gelu-fusion"});
  CHECK(value(gpt, "model.activation") == "gelu");
  CHECK(noted(gpt, Fate::unsupported, "--position-embedding-type none"));
  const DeckDraft groups = draft_of({"--num-query-groups", "2"});
  CHECK(value(groups, "model.kv_heads") == "4");  // Megatron looks at it with --group-query-attention only
  CHECK(value(draft_of({"--num-kv-heads", "2"}), "model.kv_heads") == "2");
}

TEST_CASE("steps may be given in samples") {
  const DeckDraft draft =
      import_megatron({"--micro-batch-size", "1", "--global-batch-size", "8", "--train-samples", "8007",
                       "--lr-decay-samples", "4000", "--lr-warmup-samples", "800", "--lr", "1", "--lr-decay-style",
                       "WSD", "--lr-wsd-decay-samples", "400", "--lr-wsd-decay-style", "linear"},
                      "test", {});
  CHECK(value(draft, "run.steps") == "1000");
  CHECK(value(draft, "optimizer.decay_steps") == "500");
  CHECK(value(draft, "optimizer.warmup_steps") == "100");
  CHECK(value(draft, "optimizer.final_decay_steps") == "50");
  CHECK(noted(draft, Fate::open, "--hidden-size"));
  CHECK(value(draft_of({"--lr-warmup-fraction", "0.01"}), "optimizer.warmup_steps") == "10");
  CHECK_THROWS_AS(import_megatron({"--micro-batch-size", "1"}, "test", {}), Error);  // a global batch needs ranks
}

TEST_CASE("patience with ranks that hang: what holds after the start wins") {
  CHECK(value(draft_of({}), "run.hang_timeout") == "absent");
  CHECK(value(draft_of({"--distributed-timeout-minutes", "20"}), "run.hang_timeout") == "1200");
  CHECK(value(draft_of({"--distributed-timeout-minutes", "20", "--distributed-timeout-seconds-after-init", "300"}),
              "run.hang_timeout") == "300");
}

TEST_CASE("stages, chunks and shards") {
  const auto layers = [](std::vector<std::string> more) {
    more.insert(more.end(), {"--pipeline-model-parallel-size", "4"});
    return draft_of(more, 8, 24);
  };
  CHECK(value(layers({"--num-layers-per-virtual-pipeline-stage", "3"}), "schedule.chunks") == "2");
  CHECK(value(layers({"--num-virtual-stages-per-pipeline-rank", "3"}), "schedule.kind") == "interleaved");
  CHECK(value(layers({}), "schedule.kind") == "1f1b");
  const std::string uneven = "parallel.stage_layers";
  CHECK(value(layers({"--decoder-first-pipeline-num-layers", "5", "--decoder-last-pipeline-num-layers", "5"}),
              uneven) == "[5, 7, 7, 5]");
  CHECK(value(layers({"--pipeline-model-parallel-layout", "Ettt|(ttt|)*5tttt,t|tL"}), uneven) ==
        "[3, 3, 3, 3, 3, 3, 5, 1]");
  CHECK(value(layers({"--pipeline-model-parallel-layout", "Ettt|(ttt|)*5tttt,t|tL"}), "schedule.chunks") == "2");
  CHECK(noted(layers({"--pipeline-model-parallel-layout", "E|t*8|t*8|t*8,m,L"}), Fate::unsupported, "layout"));
  CHECK(noted(layers({"--pipeline-model-parallel-layout", "((t"}), Fate::unsupported, "layout"));
  CHECK(value(draft_of({"--num-distributed-optimizer-instances", "2"}), "parallel.shard") == "4");
  CHECK(value(draft_of({"--use-megatron-fsdp", "--data-parallel-sharding-strategy", "optim_grads"}), "parallel.zero") ==
        "2");
}

TEST_CASE("recompute, data and misspelt names") {
  const DeckDraft draft = draft_of({"--recompute-granularity", "selective", "--recompute-modules", "core_attn,mlp",
                                    "layernorm", "--data-path", "0.25", "a", "0.75", "b", "--split", "99,1",
                                    "--micro_batch_size", "4", "--numlayers", "3", "stray"});
  CHECK(value(draft, "schedule.recompute_modules") == "[attention, mlp, norm]");
  CHECK(value(draft, "data.train") == "[{prefix: a, weight: 0.25}, {prefix: b, weight: 0.75}]");
  CHECK(value(draft, "data.split") == "\"99,1,0\"");
  CHECK(value(draft, "model.layers") == "12");
  CHECK(noted(draft, Fate::unknown, "--recompute-modules core_attn,mlp layernorm"));
  CHECK(noted(draft, Fate::unknown, "--micro_batch_size 4"));
  CHECK(noted(draft, Fate::unknown, "--numlayers 3 stray"));
  for (const char* name : {"--norm-rms-norm", "--untied-embeddings-and-output-weights", "--te-ln-scale-bf16"}) {
    CAPTURE(name);
    CHECK(noted(draft_of({name}), Fate::unknown, name));
  }
  CHECK(value(draft_of({"--untied-embeddings-and-output-weights"}), "model.tied") == "false");
  CHECK(value(draft_of({"--lr", "2e-3"}), "optimizer.lr") == "0.002");  // the last one counts
}

TEST_CASE("values that are none name their argument") {
  for (const auto& [words, part] :
       std::vector<std::pair<std::vector<std::string>, std::string>>{{{"--num-layers", "many"}, "--num-layers many"},
                                                                     {{"--clip-grad", "x"}, "--clip-grad x"},
                                                                     {{"--save"}, "--save"},
                                                                     {{"--swiglu=1"}, "--swiglu"}}) {
    CAPTURE(part);
    try {
      draft_of(words);
      FAIL("no error");
    } catch (const Error& error) {
      CHECK(error.code() == ExitCode::bad_input);
      CHECK(std::string(error.what()).find(part) != std::string::npos);
    }
  }
}

TEST_CASE("a broken line of a script is told") {
  const DeckDraft draft = import_megatron_script(
      "python pretrain_gpt.py --lr 1 --micro-batch-size 1 \\\n  --global-batch-size 8 # \\\n  --bf16\n", "t.sh", {});
  CHECK(value(draft, "precision.compute") == "fp32");
  CHECK(noted(draft, Fate::unknown, "--bf16"));
}
