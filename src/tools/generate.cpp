// SPDX-License-Identifier: Apache-2.0
/// Reads a checkpoint into an Inference and continues a prompt, or writes the prompt's logits.
#include "llmtrain/tools/generate.hpp"

#include <unistd.h>

#include <boost/program_options.hpp>
#include <cstdio>
#include <iostream>

#include "llmtrain/base/text.hpp"
#include "llmtrain/checkpoint/h5_writer.hpp"
#include "llmtrain/config/read.hpp"
#include "llmtrain/driver/inference.hpp"
#include "llmtrain/driver/sampling.hpp"
#include "llmtrain/tokenizer/tokenizer.hpp"

namespace llmtrain {

namespace {

namespace po = boost::program_options;

struct Request {
  std::string checkpoint;
  std::string prompt;
  std::string prompt_ids;
  std::string logits;
  std::int64_t tokens = 200;
  double temperature = 0.8;
  std::uint64_t seed = 1;
  int threads = 0;
};

/// False when only help was asked for.
bool parse(std::span<const std::string> args, Request& request) {
  po::options_description options("Options");
  options.add_options()                                                                        //
      ("help", "print this text")                                                              //
      ("prompt", po::value(&request.prompt), "text to continue")                               //
      ("prompt-ids", po::value(&request.prompt_ids), "token ids to continue, as 1,2,3")        //
      ("tokens", po::value(&request.tokens), "tokens to generate (default 200)")               //
      ("temperature", po::value(&request.temperature), "0 = most likely token (default 0.8)")  //
      ("seed", po::value(&request.seed), "of the random draws (default 1)")                    //
      ("threads", po::value(&request.threads), "0 = all cores (default)")                      //
      ("logits", po::value(&request.logits),
       "write the prompt's logits [positions, vocab] in fp32 to this HDF5 file and generate nothing");
  po::options_description hidden;
  hidden.add_options()("checkpoint", po::value(&request.checkpoint));
  po::options_description all;
  all.add(options).add(hidden);
  po::positional_options_description positional;
  positional.add("checkpoint", 1);
  po::variables_map values;
  try {
    po::store(po::command_line_parser(std::vector<std::string>(args.begin(), args.end()))
                  .options(all)
                  .positional(positional)
                  .run(),
              values);
    po::notify(values);
  } catch (const po::error& error) {
    fail(ExitCode::usage, "generate: {}; see llmtrain generate --help", error.what());
  }
  if (values.count("help") != 0) {
    std::cout << "Usage: llmtrain generate CHECKPOINT (--prompt TEXT | --prompt-ids IDS) [options]\n\n"
                 "Continues a prompt with the model of a checkpoint: a step folder, or a checkpoints folder and then its\n"
                 "newest step. The text goes to standard output.\n\n"
              << options;
    return false;
  }
  require(!request.checkpoint.empty(), ExitCode::usage, "generate: name a checkpoint; see llmtrain generate --help");
  require(request.prompt.empty() != request.prompt_ids.empty(), ExitCode::usage,
          "generate: give one of --prompt and --prompt-ids; see llmtrain generate --help");
  require(request.temperature >= 0 && request.tokens >= 0, ExitCode::usage,
          "generate: --temperature and --tokens must not be negative");
  return true;
}

std::vector<std::int32_t> parse_ids(const std::string& text, std::int64_t vocab) {
  std::vector<std::int32_t> ids;
  std::size_t at = 0;
  while (at < text.size()) {
    const std::size_t end = std::min(text.find(',', at), text.size());
    const auto id = parse_integer(std::string_view(text).substr(at, end - at));
    require(id.has_value() && *id >= 0 && *id < vocab, ExitCode::usage,
            "generate: --prompt-ids: '{}' is not a token id below {}", text.substr(at, end - at), vocab);
    ids.push_back(static_cast<std::int32_t>(*id));
    at = end + 1;
  }
  return ids;
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
    const std::int32_t next = choose_token(logits, request.temperature,
                                           uniform_number(request.seed, static_cast<std::uint64_t>(n)));
    if (tokenizer.eod() == next) break;
    tokens.push_back(next);
    print(tokenizer.decode(std::span(&next, 1)));
  }
  print("\n");
}

}  // namespace

int tool_generate(std::span<const std::string> args) {
  Request request;
  if (!parse(args, request)) return 0;
  const Checkpoint checkpoint = open_checkpoint(MpiComm{}, request.checkpoint);
  const Deck deck = parse_deck(read_checkpoint_state(MpiComm{}, checkpoint).deck, "the checkpoint's deck");
  const std::unique_ptr<Tokenizer> tokenizer = make_tokenizer(deck.data.tokenizer);

  std::vector<std::int32_t> tokens = parse_ids(request.prompt_ids, deck.model.vocab);
  tokenizer->encode(request.prompt, tokens);
  const bool fits = static_cast<std::int64_t>(tokens.size()) <= deck.model.seq_len;
  require(request.logits.empty() || fits, ExitCode::usage,
          "generate: --logits takes at most model.seq_len = {} tokens, the prompt has {}", deck.model.seq_len,
          tokens.size());

  const std::unique_ptr<Device> device = make_cpu_device(request.threads);
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
