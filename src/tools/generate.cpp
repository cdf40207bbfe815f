// SPDX-License-Identifier: Apache-2.0
/// Reads a checkpoint into an Inference and continues a prompt, or writes the prompt's logits.
#include <array>
#include <cmath>
#include <cstdio>
#include <iostream>

#include "llmtrain/base/files.hpp"
#include "llmtrain/checkpoint/h5_writer.hpp"
#include "llmtrain/config/numbers.hpp"
#include "llmtrain/config/read.hpp"
#include "llmtrain/driver/inference.hpp"
#include "llmtrain/driver/resolve.hpp"
#include "llmtrain/driver/sampling.hpp"
#include "llmtrain/tokenizer/tokenizer.hpp"
#include "llmtrain/tools/options.hpp"

namespace llmtrain {

namespace {

namespace po = boost::program_options;

struct Request {
  std::string checkpoint;
  std::string prompt;
  std::string prompt_file;
  std::string prompt_ids;
  std::string logits;
  std::int64_t tokens = 200;
  Sampling sampling;
  std::uint64_t seed = 1;
  int threads = 0;
};

/// False when only help was asked for.
bool parse(Arguments arguments, Request& request) {
  po::options_description options("Options");
  options.add_options()                                                                                              //
      ("help", "print this text")                                                                                    //
      ("prompt", po::value(&request.prompt)->value_name("TEXT"), "text to continue")                                 //
      ("prompt-file", po::value(&request.prompt_file)->value_name("FILE"),                                           //
       "text to continue, without the newline that ends the file")                                                   //
      ("prompt-ids", po::value(&request.prompt_ids)->value_name("IDS"), "token ids to continue, as 1,2,3")           //
      ("tokens", po::value(&request.tokens)->value_name("N"), "tokens to generate (default 200)")                    //
      ("temperature", po::value(&request.sampling.temperature)->value_name("T"),                                     //
       "divides the logits; 0 = always the most likely token (default 0.8)")                                         //
      ("top-p", po::value(&request.sampling.top_p)->value_name("P"),                                                 //
       "draw only from the most likely tokens that together have probability P (default 1: from all)")               //
      ("seed", po::value(&request.seed)->value_name("N"), "of the random draws (default 1)")                         //
      ("threads", po::value(&request.threads)->value_name("N"), "OpenMP threads; 0 = OMP_NUM_THREADS or all cores")  //
      ("logits", po::value(&request.logits)->value_name("FILE.h5"),
       "write the prompt's logits [positions, vocab] in fp32 and generate nothing");
  const auto [given, words] = parse_options("generate", arguments, options);
  if (given.contains("help")) {
    std::cout
        << tool_usage("generate", options)
        << "CHECKPOINT is a step folder, or a checkpoints folder: then its newest step. The text goes to standard "
           "output.\n";
    return false;
  }
  require(words.size() == 1, ExitCode::usage, "generate: name one checkpoint (see llmtrain generate --help)");
  request.checkpoint = words.front();
  require(given.count("prompt") + given.count("prompt-file") + given.count("prompt-ids") == 1, ExitCode::usage,
          "generate: give one of --prompt, --prompt-file and --prompt-ids (see llmtrain generate --help)");
  require(request.tokens >= 0, ExitCode::usage, "generate: --tokens must not be negative");
  const Sampling& sampling = request.sampling;
  require(sampling.temperature >= 0 && std::isfinite(sampling.temperature), ExitCode::usage,
          "generate: --temperature must be a number of at least 0");
  require(sampling.top_p > 0 && sampling.top_p <= 1, ExitCode::usage,
          "generate: --top-p must be more than 0 and at most 1");
  return true;
}

std::vector<std::int32_t> parse_ids(const std::string& text, std::int64_t vocab) {
  std::vector<std::int32_t> ids;
  std::size_t at = 0;
  while (at < text.size()) {
    const std::size_t end = std::min(text.find(',', at), text.size());
    const auto id = parse_integer(std::string_view(text).substr(at, end - at));
    require(id && id.value >= 0 && id.value < vocab, ExitCode::usage,
            "generate: --prompt-ids: '{}' is not a token id below {}", text.substr(at, end - at), vocab);
    ids.push_back(static_cast<std::int32_t>(id.value));
    at = end + 1;
  }
  return ids;
}

/// The prompt as token ids.
std::vector<std::int32_t> prompt_tokens(const Request& request, const Tokenizer& tokenizer, std::int64_t vocab) {
  std::vector<std::int32_t> tokens = parse_ids(request.prompt_ids, vocab);
  std::string text = request.prompt;
  if (!request.prompt_file.empty()) {
    text = read_file(request.prompt_file);
    if (text.ends_with('\n')) text.pop_back();
  }
  tokenizer.encode(text, tokens);
  require(!tokens.empty(), ExitCode::bad_input, "generate: the prompt is empty: there is nothing to continue");
  return tokens;
}

void write_logits(const std::string& path, Inference& model, const std::vector<std::int32_t>& tokens) {
  const auto positions = static_cast<std::int64_t>(tokens.size());
  const std::vector<float> logits = model.logits(tokens, positions);
  const std::array<std::int64_t, 2> shape{positions, static_cast<std::int64_t>(logits.size()) / positions};
  H5Writer file(path);
  file.write<std::int32_t>("/tokens", std::array{positions}, tokens);
  file.write<float>("/logits", shape, logits);
  file.close();
}

/// Continues `tokens`, printing as it goes; the context is the last seq_len tokens.
void continue_text(const Request& request, Inference& model, const Tokenizer& tokenizer, std::int64_t seq_len,
                   std::vector<std::int32_t> tokens) {
  const auto print = [](const std::string& text) {
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::fflush(stdout);
  };
  print(tokenizer.decode(tokens));
  for (std::int64_t n = 0; n < request.tokens; ++n) {
    const std::size_t context = std::min(tokens.size(), static_cast<std::size_t>(seq_len));
    const std::vector<float> logits = model.logits(std::span(tokens).last(context), 1);
    const std::int32_t next =
        choose_token(logits, request.sampling, uniform_number(request.seed, static_cast<std::uint64_t>(n)));
    if (tokenizer.eod() == next) break;
    tokens.push_back(next);
    print(tokenizer.decode(std::span(&next, 1)));
  }
  print("\n");
}

}  // namespace

int tool_generate(const MpiComm&, Arguments arguments) {
  Request request;
  if (!parse(arguments, request)) return 0;
  const Checkpoint checkpoint = open_checkpoint(MpiComm{}, request.checkpoint, Files::at_load);
  const Deck deck = parse_deck(read_checkpoint_state(MpiComm{}, checkpoint).deck, "the checkpoint's deck");
  const std::unique_ptr<Tokenizer> tokenizer = make_tokenizer(deck.data.tokenizer);

  std::vector<std::int32_t> tokens = prompt_tokens(request, *tokenizer, deck.model.vocab);
  const bool fits = static_cast<std::int64_t>(tokens.size()) <= deck.model.seq_len;
  require(request.logits.empty() || fits, ExitCode::usage,
          "generate: --logits takes at most model.seq_len = {} tokens, the prompt has {}", deck.model.seq_len,
          tokens.size());

  const std::unique_ptr<Device> device = make_cpu_device(thread_count(request.threads, MpiComm{}));
  const std::unique_ptr<Inference> model = make_inference(deck, *device);
  model->load(checkpoint);
  if (!request.logits.empty()) {
    write_logits(request.logits, *model, tokens);
  } else {
    continue_text(request, *model, *tokenizer, deck.model.seq_len, std::move(tokens));
  }
  return 0;
}

}  // namespace llmtrain
