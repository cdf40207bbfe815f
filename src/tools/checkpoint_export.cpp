// SPDX-License-Identifier: Apache-2.0
/// `llmtrain checkpoint export|consolidate`: weights for other programs.
#include <array>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <map>

#include "checkpoint_actions.hpp"
#include "llmtrain/base/files.hpp"
#include "llmtrain/base/json.hpp"
#include "llmtrain/base/text.hpp"
#include "llmtrain/checkpoint/huggingface.hpp"
#include "llmtrain/config/read.hpp"
#include "llmtrain/tokenizer/tokenizer.hpp"
#include "llmtrain/tools/options.hpp"

namespace llmtrain {

namespace {

namespace fs = std::filesystem;
namespace po = boost::program_options;

constexpr const char* byte_end = "<|endoftext|>";  // what ends a document of bytes is called

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
  const auto [given, words] = parse_options("checkpoint", arguments, options);
  if (given.contains("help")) {
    std::cout << usage << options;
    return false;
  }
  require(words.size() == 2, ExitCode::usage,
          "checkpoint {}: name a checkpoint and what to write (see llmtrain checkpoint {} --help)", action, action);
  request.checkpoint = words[0];
  request.target = words[1];
  return true;
}

DType dtype_named(const std::string& name, std::string_view action, std::span<const DType> choices) {
  for (const DType dtype : choices) {
    if (name_of(dtype) == name) return dtype;
  }
  fail(ExitCode::usage, "checkpoint {}: --dtype {} is not possible (see llmtrain checkpoint {} --help)", action, name,
       action);
}

std::string utf8(std::uint32_t code) {
  if (code < 0x80) return std::string(1, static_cast<char>(code));
  return {static_cast<char>(0xc0 | code >> 6), static_cast<char>(0x80 | (code & 0x3f))};
}

/// The byte tokenizer as tokenizers writes one: byte b is id b, under the printable character that stands for it there
/// (itself, or the next one from U+0100 on), and nothing is merged.
std::string bytes_tokenizer() {
  JsonObject vocab;
  std::uint32_t stand_in = 0x100;
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    const bool is_printable = (byte > 0x20 && byte < 0x7f) || (byte > 0xa0 && byte != 0xad);
    vocab.add(utf8(is_printable ? byte : stand_in++), byte);
  }
  const JsonObject bytes = JsonObject()
                               .add("type", "ByteLevel")
                               .add("add_prefix_space", false)
                               .add("trim_offsets", false)
                               .add("use_regex", false);
  const JsonObject end = JsonObject()
                             .add("id", 256)
                             .add("content", byte_end)
                             .add("single_word", false)
                             .add("lstrip", false)
                             .add("rstrip", false)
                             .add("normalized", false)
                             .add("special", true);
  const JsonObject model =
      JsonObject().add("type", "BPE").add("vocab", vocab.add(byte_end, 256)).add("merges", JsonArray());
  return JsonObject()
             .add("version", "1.0")
             .add("added_tokens", JsonArray().add(end))
             .add("pre_tokenizer", bytes)
             .add("decoder", bytes)
             .add("model", model)
             .text() +
         "\n";
}

std::vector<OtherFile> bytes_files() {
  const JsonObject config = JsonObject()
                                .add("tokenizer_class", "PreTrainedTokenizerFast")
                                .add("eos_token", byte_end)
                                .add("clean_up_tokenization_spaces", false);
  return {{"tokenizer.json", bytes_tokenizer()}, {"tokenizer_config.json", config.text() + "\n"}};
}

/// A tokenizer's file, or those of its folder, and what transformers keeps beside them, under the names that it knows.
std::vector<OtherFile> tokenizer_files(const std::string& tokenizer) {
  if (tokenizer == "none") return {};
  if (tokenizer == "bytes") return bytes_files();
  const fs::path path(tokenizer);
  std::error_code ignored;
  require(fs::exists(path, ignored), ExitCode::missing_input,
          "the tokenizer '{}' is not there: say where it is now with --tokenizer PATH, or leave its files out with "
          "--tokenizer none",
          tokenizer);
  const bool is_folder = fs::is_directory(path, ignored);
  const fs::path folder = is_folder ? path : fs::path(folder_of(tokenizer));
  std::map<std::string, fs::path> sources;
  if (!is_folder) sources[path.filename().string()] = path;
  for (const char* name :
       {"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "vocab.json",
        "merges.txt", "chat_template.jinja", "encoder.json", "vocab.bpe", "tokenizer.model"}) {
    if (fs::is_regular_file(folder / name, ignored)) sources[name] = folder / name;
  }
  std::vector<OtherFile> files;
  for (const auto& [name, source] : sources) {
    const std::string known = name == "encoder.json" ? "vocab.json" : name == "vocab.bpe" ? "merges.txt" : name;
    if (known == name || !sources.contains(known)) files.push_back({known, read_file(source.string())});
  }
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
  TokenizerConfig tokenizer = deck.data.tokenizer;
  if (!request.tokenizer.empty()) tokenizer.file = request.tokenizer;
  wanted.other_files = tokenizer_files(tokenizer.file);
  if (tokenizer.file != "none") wanted.end_token = make_tokenizer(tokenizer)->eod();
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
