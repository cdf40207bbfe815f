// SPDX-License-Identifier: Apache-2.0
/// Options of preprocess, and its help.
#include "preprocess_options.hpp"

#include <algorithm>
#include <iostream>

#include <boost/program_options.hpp>

#include "llmtrain/tools/options.hpp"

namespace llmtrain {
namespace {

namespace po = boost::program_options;

constexpr std::int64_t largest_line = std::int64_t{1} << 31;
constexpr std::int64_t most_threads = 1024;

constexpr char explanation[] =
    "\nTurns JSON lines (one object a line) into the token files that data.train names:\n"
    "P_KEY_document.bin, .idx and .json for each key. Each line is one document; an empty\n"
    "one is counted but has no tokens. Blank lines are skipped. Inputs may be gzip or\n"
    "Zstandard. Under mpirun the ranks share the work, and the output, in a folder that all\n"
    "of them see, is the same. If anything fails, no file is left.\n"
    "--prompt-key also writes P_KEY_document_prompt.bin and .idx, a set in which sequence i\n"
    "is one number: the tokens of the prompt of sequence i.\n"
    "\nExit codes: 0 done, 64 usage, 65 bad input (named by file:line and byte), 66 input\n"
    "missing, 73 output cannot be created, 74 read or write failed, 78 tokenizer not usable.\n";

std::vector<std::string> split_keys(const std::string& text) {
  std::vector<std::string> keys;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const std::string key = text.substr(begin, end - begin);
    require(!key.empty() && key.find('/') == std::string::npos, ExitCode::usage,
            "preprocess --json-keys {}: a key is empty or holds '/'; it becomes part of a file name", text);
    require(std::find(keys.begin(), keys.end(), key) == keys.end(), ExitCode::usage,
            "preprocess --json-keys {}: '{}' is named twice", text, key);
    keys.push_back(key);
    begin = end + 1;
  }
  return keys;
}

}  // namespace

BadText bad_text_of(const std::string& name) {
  if (name == "error") return BadText::error;
  if (name == "replace") return BadText::replace;
  require(name == "skip", ExitCode::usage, "preprocess --bad-text {}: choose error, replace or skip", name);
  return BadText::skip;
}

std::optional<PreprocessOptions> read_preprocess_options(Arguments arguments, bool prints) {
  PreprocessOptions options;
  po::options_description described("Options");
  described.add_options()            //
      ("help,h", "print this page")  //
      ("input", po::value(&options.inputs)->multitoken()->composing()->value_name("FILE..."),
       "JSON lines, also gzip or Zstandard, or patterns of names, read in this order")                        //
      ("output-prefix", po::value(&options.prefix)->value_name("P"), "first part of the output names")        //
      ("tokenizer", po::value(&options.tokenizer), "as data.tokenizer: bytes (byte b is id b), or its file")  //
      ("json-keys", po::value(&options.keys_text)->default_value(options.keys_text),
       "keys of the text, separated by commas; each makes a set of its own")  //
      ("prompt-key", po::value(&options.prompt_key)->value_name("KEY"),
       "key of a prompt that goes before each text, in tokens of its own, for data.mask_prompt")             //
      ("append-eod", po::bool_switch(&options.append_eod), "end each document with the end-of-document id")  //
      ("eod", po::value(&options.eod)->value_name("TEXT"), "the token that ends a document")                 //
      ("special-tokens", po::value(&options.special_tokens)->default_value(options.special_tokens),
       "special tokens written in the text become their ids, or are text like any other: ids or text")  //
      ("bad-text", po::value(&options.bad_text)->default_value(options.bad_text),
       "lines that are not UTF-8 or hold half a surrogate pair: error, replace (by U+FFFD) or skip")  //
      ("threads", po::value(&options.threads)->default_value(options.threads),
       "that encode, on each rank; 0 = allowed cores / ranks of the node")  //
      ("max-line-bytes", po::value(&options.max_line_bytes)->default_value(options.max_line_bytes),
       "longest line that is read")  //
      ("train-tokenizer", po::value(&options.trained_vocab)->value_name("N"),
       "instead, train a byte-level BPE of N ids on the texts and write P_tokenizer.json")  //
      ("pattern", po::value(&options.pattern)->default_value(options.pattern),
       "how the trained tokenizer splits text: gpt2, llama3, o200k, qwen2 or an expression");
  const po::variables_map given = parse_options("preprocess", arguments, described, Words::refused).options;
  if (given.count("help") != 0) {
    if (prints) std::cout << tool_usage("preprocess", described) << explanation;
    return std::nullopt;
  }
  const bool trains = given.count("train-tokenizer") != 0;
  for (const char* name : {"input", "output-prefix", trains ? "input" : "tokenizer"}) {
    require(given.count(name) != 0, ExitCode::usage, "preprocess: --{} is missing; see llmtrain preprocess --help",
            name);
  }
  for (const char* name : {"tokenizer", "append-eod", "prompt-key", "special-tokens"}) {
    require(!trains || given[name].empty() || given[name].defaulted(), ExitCode::usage,
            "preprocess --train-tokenizer does not go with --{}: train first, then name the file as --tokenizer", name);
  }
  require(trains || given["pattern"].defaulted(), ExitCode::usage,
          "preprocess --pattern is for --train-tokenizer; else write --tokenizer '{{file: F, pattern: P}}'");
  require(options.max_line_bytes >= 1 && options.max_line_bytes <= largest_line, ExitCode::usage,
          "preprocess --max-line-bytes {}: choose from 1 to {}", options.max_line_bytes, largest_line);
  require(options.threads >= 0 && options.threads <= most_threads, ExitCode::usage,
          "preprocess --threads {}: choose from 0 to {}", options.threads, most_threads);
  require(options.special_tokens == "ids" || options.special_tokens == "text", ExitCode::usage,
          "preprocess --special-tokens {}: choose ids or text", options.special_tokens);
  options.keys = split_keys(options.keys_text);
  const bool is_text = std::find(options.keys.begin(), options.keys.end(), options.prompt_key) != options.keys.end();
  require(!is_text, ExitCode::usage,
          "preprocess --prompt-key {}: is one of --json-keys; the prompt is a key of its own", options.prompt_key);
  return options;
}

}  // namespace llmtrain
