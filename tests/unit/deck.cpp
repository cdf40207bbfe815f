// SPDX-License-Identifier: Apache-2.0
/// Reading decks: every key, presets, the command line, dumps that read back, suggestions.
#include "llmtrain/config/deck.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "deck_helpers.hpp"
#include "llmtrain/config/dump.hpp"
#include "llmtrain/config/key.hpp"
#include "llmtrain/config/presets.hpp"

using namespace llmtrain;

namespace {

/// A value other than the default that the key accepts, as YAML.
std::string other_value(const Key& key) {
  struct Other {
    const Key& key;
    std::string operator()(const std::int64_t* v) const { return std::to_string(*v == 1 ? 2 : *v == 0 ? 1 : *v - 1); }
    std::string operator()(const int* v) const { return std::to_string(*v + 1); }
    std::string operator()(const double* v) const { return *v > 0.25 ? "0.25" : *v > 0 ? "0.0078125" : "0.5"; }
    std::string operator()(const bool* v) const { return *v ? "false" : "true"; }
    std::string operator()(const std::string*) const {
      return key.facts.names.empty() ? "'it''s \"x\" \\ #1: é'" : std::string(key.facts.names.back());
    }
    std::string operator()(const Choice& c) const { return std::string(key.facts.names.at(c.get(c.at) == 0 ? 1 : 0)); }
    std::string operator()(const std::vector<std::int64_t>*) const { return "[3, 1]"; }
    std::string operator()(const std::vector<double>*) const { return "[0.1, 0.3]"; }
    std::string operator()(const std::vector<std::string>*) const {
      return key.facts.key_names ? "[data, model.rope.theta]" : fmt::format("[{}]", key.facts.names.back());
    }
    std::string operator()(const std::vector<DataSource>*) const { return "[a b, {prefix: '- x', weight: 0.3}]"; }
    std::string operator()(const TokenizerConfig*) const {
      return "{file: 'dir/t.json', pattern: '\\p{L}+|\"', special: {'<|a|>': 5, 'b: c': 0}, eod: '<|a|>'}";
    }
  };
  if (key.path == "model.rope.scaling.factor") return "8";
  Deck deck;
  return std::visit(Other{key}, key.slot(deck));
}

/// The flow text {a: {b: value}} of a dotted path.
std::string nested(const std::string& path, const std::string& value) {
  const std::size_t dot = path.find('.');
  if (dot == std::string::npos) return fmt::format("{{{}: {}}}", path, value);
  return fmt::format("{{{}: {}}}", path.substr(0, dot), nested(path.substr(dot + 1), value));
}

struct Anything {
  template <class T>
  operator T() const;  // NOLINT: stands for any member
};

/// Number of members of an aggregate.
template <class T, class... Args>
constexpr std::size_t members() {
  if constexpr (requires { T{Args{}..., Anything{}}; }) {
    return members<T, Args..., Anything>();
  } else {
    return sizeof...(Args);
  }
}

std::size_t rows(const std::string& prefix) {
  std::size_t count = 0;
  for (const Block& block : deck_blocks()) {
    for (const Key& key : block.keys) count += key.path.starts_with(prefix + ".") ? 1 : 0;
  }
  return count;
}

}  // namespace

TEST_CASE("every member of the deck has a row") {
  CHECK(rows("run") == members<RunConfig>());
  CHECK(rows("model") - rows("model.rope") + 1 == members<ModelConfig>());
  CHECK(rows("model.rope") - rows("model.rope.scaling") + 1 == members<RopeConfig>());
  CHECK(rows("model.rope.scaling") == members<RopeScaling>());
  CHECK(rows("parallel") == members<ParallelConfig>());
  CHECK(rows("schedule") == members<ScheduleConfig>());
  CHECK(rows("precision") == members<PrecisionConfig>());
  CHECK(rows("optimizer") == members<OptimizerConfig>());
  CHECK(rows("data") == members<DataConfig>());
  CHECK(rows("checkpoint") == members<CheckpointConfig>());
  CHECK(rows("output") == members<OutputConfig>());
  CHECK(deck_blocks().size() == members<Deck>());
}

TEST_CASE("every key is read from the deck and from the command line, and dumped so that it reads back") {
  const std::string plain = to_yaml(parse_deck("{}", "deck.yaml"));
  for (const Block& block : deck_blocks()) {
    for (const Key& key : block.keys) {
      CAPTURE(key.path);
      const std::string value = other_value(key);
      // Rules between keys may refuse one odd value alone; the value must have been read all the same.
      const std::string problem = deck_error(nested(key.path, value));
      if (!problem.empty()) {
        CHECK_FALSE(contains(problem, "it takes"));
        CHECK(contains(problem, "deck.yaml:1:"));
        continue;
      }
      const std::string text = to_yaml(parse_deck(nested(key.path, value), "deck.yaml"));
      if (key.path != "optimizer.kind") CHECK(text != plain);  // adamw is all that there is
      CHECK(to_yaml(parse_deck(text, "again.yaml")) == text);
      const std::vector<std::string> overrides{key.path + "=" + value};
      CHECK(to_yaml(parse_deck("{}", "deck.yaml", overrides)) == text);
    }
  }
}

TEST_CASE("the commented deck reads back to the defaults") {
  const std::string text = to_commented_yaml(Deck{});
  CHECK(to_yaml(parse_deck(text, "deck.yaml")) == to_yaml(parse_deck("{}", "deck.yaml")));
  for (const Block& block : deck_blocks()) {
    for (const Key& key : block.keys) {
      CHECK(contains(text, "  " + std::string(key.name()) + ": " + key.default_text() + "\n"));
    }
  }
}

TEST_CASE("doubles are dumped shortest and exactly") {
  const std::vector<std::string> overrides{"optimizer.lr=0.1", "optimizer.eps=4.9406564584124654e-324",
                                           "model.init_std=0.30000000000000004"};
  const Deck deck = parse_deck("{}", "deck.yaml", overrides);
  const Deck again = parse_deck(to_yaml(deck), "deck.yaml");
  CHECK(again.optimizer.eps == 4.9406564584124654e-324);
  CHECK(again.model.init_std == 0.1 + 0.2);
  CHECK(contains(to_yaml(deck), "  lr: 0.1\n"));
  CHECK(contains(to_yaml(Deck{}), "  min_lr: 3e-5\n"));
}

TEST_CASE("preset first, then the deck, then the command line") {
  const Deck preset = parse_deck("model: {preset: llama3.2-1b}", "deck.yaml");
  CHECK(preset.model.layers == 16);
  CHECK(preset.model.rope.scaling.factor == 32);
  CHECK(preset.model.head_dim == 64);
  const std::vector<std::string> overrides{"model.ffn=4096", "model.rope.scaling={factor: 4}"};
  const Deck deck = parse_deck("model: {layers: 2, ffn: 1024, preset: llama3.2-1b}", "deck.yaml", overrides);
  CHECK(deck.model.layers == 2);
  CHECK(deck.model.ffn == 4096);
  CHECK(deck.model.rope.scaling.factor == 4);
  CHECK(deck.model.rope.scaling.original_max_position == 8192);
  const std::vector<std::string> other{"model.preset=qwen2.5-1.5b"};
  CHECK(parse_deck("model: {preset: llama3.2-1b}", "deck.yaml", other).model.hidden == 1536);
  for (const Preset& row : presets()) CHECK(deck_error("model: {preset: " + std::string(row.name) + "}").empty());
  CHECK(contains(deck_error("model: {preset: llama3.2-1B}"), "did you mean 'llama3.2-1b'?"));
}

TEST_CASE("a family's parts first, then the preset, the deck, the command line") {
  const ModelConfig gpt = parse_deck("model: {family: gpt}", "deck.yaml").model;
  CHECK(gpt.activation == Activation::gelu_tanh);
  CHECK(gpt.positions == Positions::learned);
  CHECK(gpt.qkv_bias);
  CHECK_FALSE(gpt.tied);
  CHECK(gpt.ffn == ModelConfig{}.ffn);
  CHECK(parse_deck("model: {activation: gelu, family: gpt}", "deck.yaml").model.activation == Activation::gelu);
  const std::vector<std::string> by_command_line{"model.family=gpt"};
  CHECK(parse_deck("model: {family: llama}", "deck.yaml", by_command_line).model.positions == Positions::learned);
  const std::vector<std::string> to_llama{"model.family=llama"};
  CHECK(parse_deck("model: {family: gpt}", "deck.yaml", to_llama).model.activation == Activation::silu);
  CHECK(contains(deck_error("model: {family: gtp}"), "did you mean 'gpt'?"));
}

TEST_CASE("command line values") {
  const std::vector<std::string> overrides{"model.rope.theta=1e4", "data.split=98,2,0",
                                           "data.train=[{prefix: a, weight: 1}, {prefix: b, weight: 2}]",
                                           "run={seed: 7, steps: 1e3}", "run.max_walltime=1:02:03"};
  const Deck deck = parse_deck("run: {steps: 5}", "deck.yaml", overrides);
  CHECK(deck.model.rope.theta == 1e4);
  CHECK(deck.data.split == "98,2,0");
  CHECK(deck.data.train.size() == 2);
  CHECK(deck.data.train[1].weight == 2);
  CHECK(deck.run.seed == 7);
  CHECK(deck.run.steps == 1000);
  CHECK(deck.run.max_walltime == 3723);
  CHECK(contains(deck_error("{}", {"run.steps=abc"}), "command line: run.steps=abc: run.steps: 'abc' is not a number"));
  CHECK(contains(deck_error("{}", {"run.steps=30", "run.steps=30"}), "'steps' is given twice on the command line"));
  CHECK(contains(deck_error("{}", {"run={steps: 30}", "run.steps=30"}), "given twice"));
  CHECK(contains(deck_error("{}", {"run.steps="}), "run.steps: has no value"));
  CHECK(contains(deck_error("{}", {"steps=30"}),
                 "command line: steps=30: unknown key 'steps' at the top level; did you mean "
                 "'run.steps'?"));
  CHECK(contains(deck_error("{}", {"run.steps"}, {}, ExitCode::usage), "block.key=value"));
  CHECK(contains(deck_error("{}", {"--steps=5"}, {}, ExitCode::usage), "block.key=value"));
  CHECK(contains(deck_error("{}", {std::string(100000, '.') + "=1"}), "unknown key"));
}

TEST_CASE("tokenizers: text or map; dotted keys change one field") {
  const std::vector<std::string> overrides{"data.tokenizer.eod=</s>"};
  const Deck deck = parse_deck("data: {tokenizer: {file: t.json, pattern: gpt2}}", "deck.yaml", overrides);
  CHECK(deck.data.tokenizer.pattern == "gpt2");
  CHECK(deck.data.tokenizer.eod == "</s>");
  const std::vector<std::string> whole{"data.tokenizer=bytes"};
  CHECK(parse_deck("data: {tokenizer: {file: t.json, pattern: gpt2}}", "deck.yaml", whole)
            .data.tokenizer.pattern.empty());
  CHECK(contains(deck_error("data: {tokenizer: {eod: x}}"), "bytes takes no pattern"));
  CHECK(contains(deck_error("data: {tokenizer: {file: f, specail: {}}}"), "did you mean 'special'?"));
  CHECK(contains(deck_error("data: {tokenizer: {file: f, special: {a: -1}}}"), "is negative"));
}

TEST_CASE("unknown keys: place and suggestion") {
  CHECK(deck_error("optimizer:\n  lr: 1\n  learing_rate: 1\n") ==
        "deck.yaml:3:3: unknown key 'learing_rate' in 'optimizer'; did you mean 'lr'?");
  CHECK(deck_error("model: {d_model: 8}") == "deck.yaml:1:9: unknown key 'd_model' in 'model'; did you mean 'hidden'?");
  CHECK(contains(deck_error("model: {n_head: 8}"), "did you mean 'heads'?"));
  CHECK(contains(deck_error("optimiser: {lr: 1}"),
                 "unknown key 'optimiser' at the top level; did you mean 'optimizer'?"));
  CHECK(contains(deck_error("run: {lr: 1}"), "did you mean 'optimizer.lr'?"));
  CHECK(
      contains(deck_error("model: {rope: {tetha: 1}}"), "unknown key 'tetha' in 'model.rope'; did you mean 'theta'?"));
  CHECK(deck_error("run: {zzqqxx: 1}") == "deck.yaml:1:7: unknown key 'zzqqxx' in 'run'");
  CHECK(contains(deck_error("optimizer: {lrr: 1}"), "did you mean 'lr'?"));
  CHECK(contains(deck_error("checkpoint: {allow: [data.tokeniser]}"), "did you mean 'data.tokenizer'?"));
}

TEST_CASE("all mistakes are reported at once, one a line") {
  const std::string message =
      deck_error("run: {steps: -1, device: gpu}\nmodel: {hidden: 250, tied: yes}\n", {"optimizer.lr=x"});
  CHECK(std::count(message.begin(), message.end(), '\n') == 4);
  CHECK(contains(message, "deck.yaml:1:14: run.steps: '-1' is out of range"));
  CHECK(contains(message,
                 "deck.yaml:2:17: model.hidden 250 is not divisible by model.heads 8: hidden may be 248 or 256"));
}

TEST_CASE("the run id does not depend on names, paths, output and threads") {
  const auto id = [](const std::vector<std::string>& overrides) {
    return to_yaml(parse_deck("data: {train: [a]}", "deck.yaml", overrides), DumpFor::run_id);
  };
  const std::string base = id({});
  CHECK(id({"run.name=x", "run.dir=y", "checkpoint.dir=z", "run.threads=3", "output.log_every=7",
            "data.train=[/b/a]"}) == base);
  CHECK(id({"checkpoint.resume=x/y"}) == base);
  CHECK(id({"run.seed=1"}) != base);
  CHECK(id({"data.train=[a, b]"}) != base);
  const std::string stored = to_yaml(Deck{}, DumpFor::checkpoint);
  CHECK(contains(stored, "  name: demo\n"));
  CHECK_FALSE(contains(stored, "dir:"));
}
