// SPDX-License-Identifier: Apache-2.0
/// Fuzz target of the deck reader. An input is a deck and, each after a byte 0x1e, values of the command line.
#include <string>
#include <vector>

#include "llmtrain/base/error.hpp"
#include "llmtrain/config/dump.hpp"
#include "llmtrain/config/key.hpp"
#include "llmtrain/config/read.hpp"
#include "target.hpp"

namespace llmtrain::fuzz {

namespace {

constexpr char separator = '\x1e';

std::vector<std::string> pieces_of(std::string_view bytes) {
  std::vector<std::string> pieces;
  for (std::size_t at = 0; at <= bytes.size();) {
    const std::size_t end = std::min(bytes.find(separator, at), bytes.size());
    pieces.emplace_back(bytes.substr(at, end - at));
    at = end + 1;
  }
  return pieces;
}

void check_refusal(const Error& error, const std::vector<std::string>& overrides) {
  const std::string message = error.what();
  expect(error.code() == ExitCode::configuration || (error.code() == ExitCode::usage && !overrides.empty()),
         "exit code " + std::to_string(static_cast<int>(error.code())));
  if (error.code() == ExitCode::usage) return;
  expect(message.starts_with("deck.yaml") || message.starts_with("command line: "), "no place: " + message);
}

/// Reads the deck; what is accepted must survive being written and read again.
void read(const std::string& text, const std::vector<std::string>& overrides, const DeckChecks& checks) {
  Deck deck;
  try {
    deck = parse_deck(text, "deck.yaml", overrides, checks);
  } catch (const Error& error) {
    return check_refusal(error, overrides);
  }
  const std::string written = to_yaml(deck);
  expect(to_yaml(parse_deck(written, "written", {}, checks)) == written,
         "the deck changes when written and read again");
}

}  // namespace

void try_bytes(std::string_view bytes) {
  std::vector<std::string> overrides = pieces_of(bytes);
  const std::string text = overrides.front();
  overrides.erase(overrides.begin());
  read(text, overrides, {});
  read(text, overrides, {.ranks = static_cast<int>(1 + bytes.size() % 64), .data = true});
}

std::vector<std::string> seeds() {
  Deck full;
  full.data.train = {{.prefix = "a", .weight = 0.5}, {.prefix = "b", .weight = 0}};
  full.data.tokenizer = {.file = "f.json", .pattern = "gpt2", .special = {{"<x>", 7}}, .eod = "<x>"};
  full.schedule.micro_batch = 1;
  std::vector<std::string> all{
      to_yaml(full),
      "run: {steps: 30, name: 'x', max_walltime: 1:30:00}\nmodel:\n  rope: {theta: 1e4, scaling: {factor: 8}}\n",
      "model: {family: gpt, activation: gelu_tanh, positions: learned, dropout: 0.1}\nparallel: {tensor: 2}\n",
      "model: {preset: no-such}\nschedule: {recompute: selective, recompute_modules: [norm, mlp]}\n",
      "\xEF\xBB\xBFrun:\r\n  seed: +3.0e+1  # comment\r\n...\n",
      "run: &a {name: \"b\\u00e9\\n\"}\nmodel: *a\n---\n- !!int 3\n- ? |\n    text\n  : >-\n    folded\n",
      "%YAML 1.2\n---\nrun: ~\n",
      "optimizer: {betas: [0.9, .5], lr: .nan}\noptimizer: {}\nlearning_rate: 1\nmodel: {n_head: 0x10}\n",
      "{}\x1erun={steps: 3}\x1erun.seed=5\x1emodel.rope.scaling={}",
  };
  const Deck defaults;
  for (const Block& block : deck_blocks()) {
    for (const Key& key : block.keys) all.push_back("{}\x1e" + key.path + "=" + format_value(key, defaults));
  }
  return all;
}

}  // namespace llmtrain::fuzz
