// SPDX-License-Identifier: Apache-2.0
/// Megatron-LM's arguments of data, tokenizer, evaluation and checkpoints.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "llmtrain/base/error.hpp"
#include "llmtrain/base/files.hpp"
#include "llmtrain/config/dump.hpp"
#include "llmtrain/config/numbers.hpp"
#include "megatron_arguments.hpp"

namespace llmtrain::megatron {
namespace {

/// Words of a blend; one word that holds all of them is taken apart.
std::vector<std::string> blend_words(const Translation& t, std::string_view name) {
  const std::vector<std::string>& words = t.args.words(name);
  if (words.size() != 1 || words.front().find(' ') == std::string::npos) return words;
  std::vector<std::string> out;
  const std::string& all = words.front();
  for (std::size_t begin = 0; begin <= all.size();) {
    const std::size_t end = std::min(all.find(' ', begin), all.size());
    if (end > begin) out.push_back(all.substr(begin, end - begin));
    begin = end + 1;
  }
  t.draft.note({Fate::unknown, std::string(name), t.args.shown(name),
                "one quoted word, which Megatron takes for one path; read as its words"});
  return out;
}

/// Weights and prefixes as Megatron tells them apart: pairs, if every other word is a number.
std::vector<DataSource> blend(const std::vector<std::string>& words) {
  bool pairs = words.size() % 2 == 0;
  for (std::size_t i = 0; i < words.size() && pairs; i += 2) pairs = static_cast<bool>(parse_real(words[i]));
  std::vector<DataSource> out;
  for (std::size_t i = 0; i < words.size(); i += pairs ? 2 : 1) {
    out.push_back({words[i + (pairs ? 1 : 0)], pairs ? parse_real(words[i]).value : 0});
  }
  return out;
}

std::string blend_text(const std::vector<DataSource>& sets, bool weights) {
  std::vector<std::string> items;
  for (const DataSource& set : sets) {
    items.push_back(weights && set.weight != 0
                        ? fmt::format("{{prefix: {}, weight: {}}}", quote_yaml(set.prefix), format_real(set.weight))
                        : quote_yaml(set.prefix));
  }
  return fmt::format("[{}]", fmt::join(items, ", "));
}

/// Megatron's split with its missing shares, which are 0.
std::string three_shares(const std::string& split) {
  std::string out;
  std::size_t fields = 1;
  for (const char c : split) {
    if (c == ' ') continue;
    fields += c == ',' ? 1 : 0;
    out.push_back(c);
  }
  for (; fields < 3; ++fields) out += ",0";
  return out;
}

void translate_sets(const Translation& t) {
  const Arguments& args = t.args;
  const std::string_view train = args.which({"data-path", "train-data-path"});
  std::vector<DataSource> sets = blend(blend_words(t, train));
  if (sets.empty()) {
    t.open("--data-path", "the data (data.train)");
  } else {
    if (sets.size() == 1) sets.front().weight = 0;
    t.draft.set("data.train", blend_text(sets, true), args.shown(train));
  }
  const std::vector<DataSource> valid = blend(blend_words(t, "valid-data-path"));
  if (!valid.empty()) {
    t.draft.set("data.valid", blend_text(valid, false), args.shown("valid-data-path"));
    if (valid.size() > 1 && !args.given("multiple-validation-sets")) {
      t.lacks(args.shown("valid-data-path"),
              "a blend of sets for evaluation: each is evaluated by itself, without weights");
    }
  }
  const bool own = args.given("train-data-path");
  const std::string split = own ? "1,0,0" : three_shares(args.text("split", "969,30,1"));
  t.draft.set("data.split", fmt::format("\"{}\"", split),
              own ? "all of --train-data-path is for training" : args.shown("split"));
  if (own && valid.empty()) t.draft.set("data.eval_every", std::int64_t{0}, args.shown("valid-data-path"));
}

}  // namespace

void translate_data(const Translation& t) {
  const Arguments& args = t.args;
  translate_sets(t);
  const bool positions = args.given("reset-position-ids"), mask = args.given("reset-attention-mask");
  const std::string_view name = args.which({"reset-attention-mask", "reset-position-ids"});
  t.draft.set("data.document_mask", positions && mask, args.shown(name));
  if (positions != mask) {
    t.lacks(args.shown(name),
            "one of --reset-position-ids and --reset-attention-mask without the other: "
            "data.document_mask does both; the deck says neither");
  }
  const std::int64_t batches = args.integer("eval-iters", 100);
  if (batches > 0) t.draft.set("data.eval_batches", batches, args.shown("eval-iters"));
  if (batches == 0) t.draft.set("data.eval_every", std::int64_t{0}, args.shown("eval-iters"));
}

void translate_tokenizer(const Translation& t) {
  const Arguments& args = t.args;
  const std::string type = args.text("tokenizer-type", "");
  const std::string model = args.text("tokenizer-model", "");
  const std::string shown = args.shown(args.which({"tokenizer-model", "tokenizer-type"}));
  if (type.starts_with("Null")) {
    return t.remark(args.shown("tokenizer-type"), "the data is token ids already; model.vocab says how many there are");
  }
  if (type == "GPT2BPETokenizer" || (type.empty() && args.given("merge-file"))) {
    const std::string vocab = args.text("vocab-file", ""), merges = args.text("merge-file", "");
    if (vocab.empty() || merges.empty()) return t.open("--vocab-file", "vocab.json and merges.txt (data.tokenizer)");
    t.draft.set("data.tokenizer", quote_yaml(folder_of(vocab)),
                args.shown("vocab-file") + ": the folder of both files");
    const bool standard = vocab == folder_of(vocab) + "/vocab.json" && merges == folder_of(vocab) + "/merges.txt";
    if (!standard) {
      t.open(args.shown("merge-file"),
             "llmtrain finds a folder's files by the names vocab.json (or encoder.json) and "
             "merges.txt (or vocab.bpe): put both there");
    }
    return;
  }
  if (type == "TikTokenizer" && !model.empty()) {
    t.draft.set("data.tokenizer", quote_yaml(model), shown);
    return t.lacks(args.shown("tokenizer-type"),
                   fmt::format("{} special ids before those of the file, and the pattern {}: with data that Megatron "
                               "tokenized set model.vocab to its size",
                               args.integer("tiktoken-num-special-tokens", 1000), args.text("tiktoken-pattern", "v2")));
  }
  if (type == "HuggingFaceTokenizer" && !model.empty()) return t.draft.set("data.tokenizer", quote_yaml(model), shown);
  if (type.empty() && model.empty()) return t.open("--tokenizer-type", "the tokenizer (data.tokenizer)");
  t.lacks(args.shown("tokenizer-type"),
          "llmtrain reads BPE files (tokenizer.json, vocab.json and merges.txt, rank files); "
          "data that is tokenized already needs only model.vocab");
  if (!args.given("vocab-size") && !args.given("padded-vocab-size")) {
    t.open("--vocab-size", "the size of that tokenizer's vocabulary (model.vocab)");
  }
}

void translate_checkpoints(const Translation& t) {
  const Arguments& args = t.args;
  const std::string save = args.text("save", ""), load = args.text("load", "");
  const std::string_view interval = args.which({"save-interval", "persistent-save-interval"});
  if (!save.empty()) t.draft.set("checkpoint.dir", quote_yaml(save), args.shown("save"));
  if (save.empty()) {
    t.draft.set("checkpoint.every", std::int64_t{0}, args.shown("save"));
  } else if (args.given(interval)) {
    t.draft.set("checkpoint.every", args.integer(interval, 0), args.shown(interval));
  } else {
    t.open("--save-interval", "steps between saves (checkpoint.every)");
  }
  t.draft.set("checkpoint.keep", std::int64_t{1'000'000'000}, "Megatron keeps all checkpoints");
  if (load.empty()) return t.draft.set("checkpoint.resume", std::string("never"), args.shown("load"));
  if (load == save) {
    return t.draft.set("checkpoint.resume", std::string("auto"), args.shown("load") + ", where --save writes");
  }
  t.draft.set("checkpoint.resume", std::string("never"), args.shown("load"));
  t.lacks(args.shown("load"), "the weights there: llmtrain reads its own checkpoints only, so the deck starts afresh");
}

}  // namespace llmtrain::megatron
