// SPDX-License-Identifier: Apache-2.0
/// `llmtrain checkpoint import`: a Hugging Face model becomes step 0 of a run.
#include <cstdio>
#include <filesystem>
#include <iostream>

#include <fmt/ranges.h>

#include "checkpoint_actions.hpp"
#include "llmtrain/base/digest.hpp"
#include "llmtrain/base/text.hpp"
#include "llmtrain/checkpoint/folders.hpp"
#include "llmtrain/checkpoint/huggingface.hpp"
#include "llmtrain/checkpoint/saver.hpp"
#include "llmtrain/config/dump.hpp"
#include "llmtrain/config/read.hpp"
#include "llmtrain/driver/parts.hpp"
#include "llmtrain/driver/resolve.hpp"
#include "llmtrain/tokenizer/tokenizer.hpp"
#include "llmtrain/tools/options.hpp"

namespace llmtrain {

namespace {

namespace fs = std::filesystem;
namespace po = boost::program_options;

constexpr const char* usage =
    "llmtrain checkpoint import FOLDER CHECKPOINTS [--deck DECK] [block.key=value ...]\n"
    "Makes CHECKPOINTS/step-00000000 from a model as Hugging Face stores it (config.json and safetensors files; "
    "llama,\n"
    "qwen2, qwen3 and gpt2). With --deck it is the deck's run at step 0: `llmtrain DECK` with "
    "checkpoint.dir=CHECKPOINTS\n"
    "goes on from it; the deck's model must be the one that FOLDER holds (exit 84). Without, the deck has the model "
    "of\n"
    "config.json and defaults.\n";

struct Request {
  std::string folder;
  std::string target;
  std::string deck;
  std::vector<std::string> overrides;
};

/// False when only help was asked for.
bool parse(Arguments arguments, Request& request) {
  po::options_description options("Options");
  options.add_options()                                                                      //
      ("deck", po::value(&request.deck)->value_name("DECK"), "the run that starts from it")  //
      ("help", "print this text");
  const auto [given, words] = parse_options("checkpoint", arguments, options);
  if (given.contains("help")) {
    std::cout << usage << options;
    return false;
  }
  require(words.size() >= 2, ExitCode::usage,
          "checkpoint import: name a folder and where the checkpoint goes (see llmtrain checkpoint import --help)");
  request.folder = words[0];
  request.target = words[1];
  request.overrides.assign(words.begin() + 2, words.end());
  require_overrides(request.overrides);
  return true;
}

/// The folder if it holds a tokenizer that llmtrain reads, else bytes.
std::string tokenizer_in(const std::string& folder) {
  std::error_code ignored;
  const auto has = [&](const char* name) { return fs::exists(fs::path(folder) / name, ignored); };
  if (!has("tokenizer.json") && !has("vocab.json")) return "bytes";
  TokenizerConfig tokenizer;
  tokenizer.file = folder;
  try {
    make_tokenizer(tokenizer);
    return folder;
  } catch (const Error& error) {
    fmt::print(stderr, "note: data.tokenizer is bytes, for the tokenizer of the folder cannot be used: {}\n",
               error.what());
    return "bytes";
  }
}

/// The run's deck as it is written.
Deck written_deck(const Request& request, const ModelConfig& stored) {
  const DeckChecks checks{.ranks = 0, .data = false};
  if (!request.deck.empty()) return read_deck(request.deck, request.overrides, checks);
  Deck deck;
  deck.model = stored;
  deck.data.tokenizer.file = tokenizer_in(request.folder);
  return parse_deck(to_yaml(deck), "config.json", request.overrides, checks);
}

void require_same_model(const Request& request, const ModelConfig& stored, const ModelConfig& model) {
  const std::vector<std::string> differences = model_differences(stored, model);
  require(differences.empty(), ExitCode::checkpoint_incompatible,
          "{} holds another model than {} describes; these keys differ:\n  {}", request.folder,
          request.deck.empty() ? "the command line" : request.deck, fmt::join(differences, "\n  "));
}

/// A run that has done nothing yet.
CheckpointState initial_state(const Deck& deck, const Tokenizer& tokenizer) {
  CheckpointState state;
  state.run_id = digest_of(to_yaml(deck, DumpFor::run_id));
  state.deck = to_yaml(deck, DumpFor::checkpoint);
  state.samples = deck.data.samples;
  state.identity["tokenizer"] = tokenizer.digest();
  return state;
}

}  // namespace

int checkpoint_import(Arguments arguments) {
  Request request;
  if (!parse(arguments, request)) return 0;
  const fs::path config = fs::path(request.folder) / "config.json";
  const ModelConfig stored = read_huggingface_config(read_huggingface_json(config), config.string());
  const Deck written = written_deck(request, stored);
  const std::unique_ptr<Tokenizer> tokenizer = make_tokenizer(written.data.tokenizer);
  const Deck deck = resolve(written, tokenizer->vocab(), DeviceKind::cpu);
  require_same_model(request, stored, deck.model);
  require(list_step_folders(request.target).steps.empty(), ExitCode::cannot_create,
          "{} holds the checkpoints of a run already: name another folder", request.target);
  const HuggingFaceFolder folder(request.folder);
  const StoreTypes types = store_types(deck.precision);
  const ImportedState state(folder, deck.model, types.masters, types.moments, request.target);
  const SaveResult saved =
      save_checkpoint(MpiComm{}, request.target, initial_state(deck, *tokenizer), state.pieces(), {});
  const std::size_t files = folder.files().size();
  fmt::print("read {} {} of {}\ncommitted {} ({})\n", files, files == 1 ? "file" : "files", request.folder,
             saved.folder.string(), human_bytes(saved.bytes));
  return 0;
}

}  // namespace llmtrain
