// SPDX-License-Identifier: Apache-2.0
/// `llmtrain checkpoint export|consolidate`: weights for other programs.
#include <cstdio>
#include <filesystem>
#include <iostream>

#include "checkpoint_actions.hpp"
#include "llmtrain/base/text.hpp"
#include "llmtrain/checkpoint/huggingface.hpp"
#include "llmtrain/config/read.hpp"
#include "llmtrain/tokenizer/tokenizer.hpp"
#include "llmtrain/tools/options.hpp"

namespace llmtrain {

namespace {

namespace fs = std::filesystem;
namespace po = boost::program_options;

struct Request {
  std::string checkpoint;
  std::string target;
  std::string dtype = "bf16";
  std::string tokenizer;
  double shard_gigabytes = 5;
};

/// False when only help was asked for.
bool parse(std::string_view action, const char* usage, Arguments arguments, po::options_description& options,
           Request& request) {
  options.add_options()("help", "print this text");
  po::options_description all;
  all.add(options).add_options()("checkpoint", po::value(&request.checkpoint))("target", po::value(&request.target));
  po::positional_options_description positional;
  positional.add("checkpoint", 1).add("target", 1);
  const po::variables_map given = parse_options("checkpoint", arguments, all, positional);
  if (given.count("help") != 0) {
    std::cout << usage << options;
    return false;
  }
  require(!request.target.empty(), ExitCode::usage,
          "checkpoint {}: name a checkpoint and what to write (see llmtrain checkpoint {} --help)", action, action);
  return true;
}

DType dtype_named(const std::string& name, std::string_view action, std::span<const DType> choices) {
  for (const DType dtype : choices) {
    if (name_of(dtype) == name) return dtype;
  }
  fail(ExitCode::usage, "checkpoint {}: --dtype {} is not possible (see llmtrain checkpoint {} --help)", action, name,
       action);
}

/// The files of a tokenizer: one file, or a folder's; beside them what transformers keeps there.
std::vector<fs::path> tokenizer_files(const std::string& tokenizer) {
  if (tokenizer == "bytes" || tokenizer == "none") return {};
  const fs::path path(tokenizer);
  std::error_code ignored;
  require(fs::exists(path, ignored), ExitCode::missing_input,
          "the tokenizer '{}' is not there: say where it is now with --tokenizer PATH, or leave its files out with "
          "--tokenizer none",
          tokenizer);
  const bool is_folder = fs::is_directory(path, ignored);
  const fs::path folder = is_folder ? path : fs::path(folder_of(tokenizer));
  std::vector<fs::path> files;
  if (!is_folder) files.push_back(path);
  for (const char* name : {"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json",
                           "vocab.json", "merges.txt", "chat_template.jinja"}) {
    const bool is_new = is_folder || path.filename() != name;
    if (is_new && fs::is_regular_file(folder / name, ignored)) files.push_back(folder / name);
  }
  require(!files.empty(), ExitCode::missing_input,
          "the folder '{}' holds no tokenizer: name another one with "
          "--tokenizer PATH",
          tokenizer);
  return files;
}

Deck deck_of(const CheckpointReader& reader) { return parse_deck(reader.read_state().deck, "the checkpoint's deck"); }

void tell(const WrittenWeights& written, DType dtype, const std::string& target) {
  fmt::print("wrote {} {} in {}, {} in {} {}\n", grouped(written.tensors), written.tensors == 1 ? "tensor" : "tensors",
             name_of(dtype), human_bytes(written.bytes), written.files, written.files == 1 ? "file" : "files");
  fmt::print("{}\n", target);
}

constexpr const char* export_usage =
    "llmtrain checkpoint export PATH FOLDER [options]\n"
    "Writes a step (PATH: its folder, or a checkpoints folder and then its newest) as Hugging Face stores models:\n"
    "config.json, generation_config.json, weights in safetensors files, the tokenizer's files. FOLDER must not exist, "
    "or\n"
    "be empty. What no architecture there holds is refused by name (exit 84).\n";

constexpr const char* consolidate_usage =
    "llmtrain checkpoint consolidate PATH FILE.safetensors [options]\n"
    "Writes the weights of a step into one file of 16-bit numbers, under llmtrain's own names, with the deck in its\n"
    "metadata. FILE must not exist.\n";

}  // namespace

int checkpoint_export(Arguments arguments) {
  Request request;
  po::options_description options("Options");
  options.add_options()                                                                              //
      ("dtype", po::value(&request.dtype)->value_name("TYPE"), "bf16, fp32 or fp16 (default bf16)")  //
      ("shard-gb", po::value(&request.shard_gigabytes)->value_name("GB"),
       "largest file, in 10^9 bytes (default 5)")  //
      ("tokenizer", po::value(&request.tokenizer)->value_name("PATH"),
       "the tokenizer's file or folder; none leaves it out (default: the deck's data.tokenizer)");
  if (!parse("export", export_usage, arguments, options, request)) return 0;
  require(request.shard_gigabytes > 0 && request.shard_gigabytes <= 1e9, ExitCode::usage,
          "checkpoint export: --shard-gb must be more than 0");
  HuggingFaceExport wanted;
  wanted.dtype = dtype_named(request.dtype, "export", std::array{DType::bf16, DType::fp32, DType::fp16});
  wanted.shard_bytes = static_cast<std::int64_t>(request.shard_gigabytes * 1e9);
  const CheckpointReader reader(MpiComm{}, open_checkpoint(MpiComm{}, request.checkpoint));
  const Deck deck = deck_of(reader);
  const std::string tokenizer = request.tokenizer.empty() ? deck.data.tokenizer.file : request.tokenizer;
  wanted.other_files = tokenizer_files(tokenizer);
  if (tokenizer == deck.data.tokenizer.file) wanted.end_token = make_tokenizer(deck.data.tokenizer)->eod();
  tell(export_huggingface(reader, deck.model, wanted, request.target), wanted.dtype, request.target);
  return 0;
}

int checkpoint_consolidate(Arguments arguments) {
  Request request;
  po::options_description options("Options");
  options.add_options()("dtype", po::value(&request.dtype)->value_name("TYPE"), "bf16 or fp16 (default bf16)");
  if (!parse("consolidate", consolidate_usage, arguments, options, request)) return 0;
  const DType dtype = dtype_named(request.dtype, "consolidate", std::array{DType::bf16, DType::fp16});
  const CheckpointReader reader(MpiComm{}, open_checkpoint(MpiComm{}, request.checkpoint));
  tell(consolidate(reader, deck_of(reader).model, dtype, request.target), dtype, request.target);
  return 0;
}

}  // namespace llmtrain
