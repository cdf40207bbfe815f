// SPDX-License-Identifier: Apache-2.0
/// JSON lines -> tokens -> .bin/.idx, one pass, bounded memory, all files or none.
#include "llmtrain/tools/tool.hpp"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>
#include <vector>

#include <boost/program_options.hpp>

#include "llmtrain/base/error.hpp"
#include "llmtrain/config/read.hpp"
#include "llmtrain/data/indexed_dataset_writer.hpp"
#include "llmtrain/data/sidecar.hpp"
#include "llmtrain/tokenizer/tokenizer.hpp"
#include "llmtrain/tools/json_lines.hpp"

namespace llmtrain {
namespace {

namespace po = boost::program_options;

constexpr std::int64_t largest_line = std::int64_t{1} << 31;

struct Options {
  std::vector<std::string> inputs;
  std::string prefix;
  std::string tokenizer;
  std::string keys_text = "text";
  std::vector<std::string> keys;
  bool append_eod = false;
  std::int64_t max_line_bytes = std::int64_t{256} << 20;
};

constexpr char usage[] =
    "Usage: llmtrain preprocess --input FILE... --output-prefix P --tokenizer bytes [options]\n\n"
    "Turns JSON lines (one object a line) into the token files that data.train names:\n"
    "P_KEY_document.bin, .idx and .json for each key. Each line is one document; an empty\n"
    "one is counted but has no tokens. Blank lines are skipped. If anything fails, no file\n"
    "is left.\n";

constexpr char exit_codes[] =
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

/// Nothing if help was asked for and printed.
std::optional<Options> read_options(std::span<const std::string> args) {
  Options options;
  po::options_description described("Options");
  described.add_options()                                                                                       //
      ("help,h", "print this page")                                                                             //
      ("input", po::value(&options.inputs)->multitoken()->composing(), "JSON lines files, read in this order")  //
      ("output-prefix", po::value(&options.prefix), "first part of the output names")                           //
      ("tokenizer", po::value(&options.tokenizer), "bytes: byte b is id b, end of document 256")                //
      ("json-keys", po::value(&options.keys_text)->default_value(options.keys_text),
       "keys of the text, separated by commas; each makes a set of its own")                                 //
      ("append-eod", po::bool_switch(&options.append_eod), "end each document with the end-of-document id")  //
      ("max-line-bytes", po::value(&options.max_line_bytes)->default_value(options.max_line_bytes),
       "longest line that is read");
  po::variables_map given;
  try {
    const po::positional_options_description none;
    po::store(po::command_line_parser(std::vector<std::string>(args.begin(), args.end()))
                  .options(described)
                  .positional(none)
                  .style(po::command_line_style::default_style & ~po::command_line_style::allow_guessing)
                  .run(),
              given);
    po::notify(given);
  } catch (const po::error& error) {
    fail(ExitCode::usage, "preprocess: {}; see llmtrain preprocess --help", error.what());
  }
  if (given.count("help") != 0) {
    std::cout << usage << '\n' << described << exit_codes;
    return std::nullopt;
  }
  for (const char* name : {"input", "output-prefix", "tokenizer"}) {
    require(given.count(name) != 0, ExitCode::usage, "preprocess: --{} is missing; see llmtrain preprocess --help",
            name);
  }
  require(options.max_line_bytes >= 1 && options.max_line_bytes <= largest_line, ExitCode::usage,
          "preprocess --max-line-bytes {}: choose from 1 to {}", options.max_line_bytes, largest_line);
  options.keys = split_keys(options.keys_text);
  return options;
}

/// The output of one key.
struct Output {
  Output(const Options& options, const std::string& key, const Tokenizer& tokenizer)
      : prefix(options.prefix + "_" + key + "_document"),
        writer(prefix, tokenizer.vocab()),
        sidecar_file(prefix + ".json") {
    sidecar.inputs = options.inputs;
    sidecar.key = key;
    sidecar.tokenizer = tokenizer.digest();
    sidecar.vocab = tokenizer.vocab();
  }

  std::string prefix;
  IndexedDatasetWriter writer;
  OutputFile sidecar_file;
  Sidecar sidecar;
};

/// Before anything is written, so that a misspelt name costs no work. Pipes are welcome, so nothing is opened here.
void check_inputs(const std::vector<std::string>& inputs) {
  for (const std::string& input : inputs) {
    const bool readable = ::access(input.c_str(), R_OK) == 0;
    require(readable, ExitCode::missing_input, "cannot open {}: {}", input, std::strerror(errno));
    require(!std::filesystem::is_directory(input), ExitCode::missing_input,
            "cannot read {}: it is a folder; name its files", input);
  }
}

volatile std::sig_atomic_t stop_signal = 0;

/// While it lives, the first SIGINT, SIGTERM or SIGHUP is only noted, so that temporary files can be removed; the second
/// one ends the process.
class SignalNote {
 public:
  SignalNote() {
    stop_signal = 0;
    struct sigaction action {};
    action.sa_handler = [](int number) { stop_signal = number; };
    action.sa_flags = static_cast<int>(SA_RESETHAND);
    for (std::size_t i = 0; i < signals.size(); ++i) ::sigaction(signals[i], &action, &before_[i]);
  }
  ~SignalNote() {
    for (std::size_t i = 0; i < signals.size(); ++i) ::sigaction(signals[i], &before_[i], nullptr);
  }
  SignalNote(const SignalNote&) = delete;
  SignalNote& operator=(const SignalNote&) = delete;

 private:
  static constexpr std::array<int, 3> signals = {SIGINT, SIGTERM, SIGHUP};
  std::array<struct sigaction, 3> before_{};
};

class Preprocessor {
 public:
  explicit Preprocessor(const Options& options)
      : options_(options), tokenizer_(make_tokenizer(parse_tokenizer(options.tokenizer))), reader_(options.keys) {
    if (options.append_eod) {
      eod_ = tokenizer_->eod();
      require(eod_.has_value(), ExitCode::usage,
              "preprocess --append-eod: tokenizer {} has no end-of-document token; leave the option out",
              options.tokenizer);
    }
    check_inputs(options.inputs);
    for (const std::string& key : options.keys) {
      outputs_.push_back(std::make_unique<Output>(options, key, *tokenizer_));
      outputs_.back()->sidecar.eod = eod_.value_or(-1);
    }
  }

  /// Ends early, with nothing published, after a signal.
  void run() {
    for (const std::string& input : options_.inputs) {
      LineReader lines(input, options_.max_line_bytes);
      JsonLine line;
      while (stop_signal == 0 && lines.next(line)) {
        bytes_ += static_cast<std::int64_t>(line.text.size()) + 1;
        if (is_blank(line.text)) continue;
        reader_.read(input, line);
        for (std::size_t key = 0; key < outputs_.size(); ++key) add_document(key);
        report(false);
      }
    }
    if (stop_signal != 0) return;
    finish();
    report(true);
  }

 private:
  void add_document(std::size_t key) {
    Output& output = *outputs_[key];
    const std::string_view text = reader_.text(key);
    tokens_.clear();
    tokenizer_->encode(text, tokens_);
    output.sidecar.repeated_keys += reader_.repeated(key) ? 1 : 0;
    output.sidecar.text_bytes += static_cast<std::int64_t>(text.size());
    if (tokens_.empty()) {
      ++output.sidecar.empty_documents;
    } else {
      if (eod_.has_value()) tokens_.push_back(*eod_);
      output.writer.add_sequence(tokens_);
    }
    output.writer.end_document();
  }

  void finish() {
    std::vector<OutputFile*> files;
    for (const auto& output : outputs_) {
      IndexedDatasetWriter& writer = output->writer;
      writer.finish();
      output->sidecar.documents = writer.documents();
      output->sidecar.sequences = writer.sequences();
      output->sidecar.tokens = writer.tokens();
      output->sidecar.max_token = writer.max_token();
      const std::string json = to_json(output->sidecar);
      output->sidecar_file.append(std::as_bytes(std::span(json)));
      files.push_back(&output->sidecar_file);
      for (OutputFile* file : writer.files()) files.push_back(file);
    }
    publish(files);
  }

  /// A progress line every few seconds on the error stream; at the end one line a key on the output stream.
  void report(bool done) {
    const auto now = std::chrono::steady_clock::now();
    if (!done && now - reported_ < std::chrono::seconds(5)) return;
    reported_ = now;
    const double seconds = std::chrono::duration<double>(now - started_).count();
    const double speed = static_cast<double>(bytes_) * 1e-6 / std::max(seconds, 1e-9);
    for (const auto& output : outputs_) {
      const IndexedDatasetWriter& writer = output->writer;
      fmt::print(done ? stdout : stderr, "{}: {} documents ({} empty), {} tokens, {:.1f} MB/s{}\n", output->prefix,
                 writer.documents(), output->sidecar.empty_documents, writer.tokens(), speed,
                 output->sidecar.repeated_keys == 0
                     ? ""
                     : fmt::format("; lines that repeat the key: {}, their last value was taken",
                                   output->sidecar.repeated_keys));
    }
  }

  const Options& options_;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::optional<std::int32_t> eod_;
  KeyReader reader_;
  std::vector<std::unique_ptr<Output>> outputs_;
  std::vector<std::int32_t> tokens_;
  std::int64_t bytes_ = 0;
  std::chrono::steady_clock::time_point started_ = std::chrono::steady_clock::now();
  std::chrono::steady_clock::time_point reported_ = started_;
};

}  // namespace

int tool_preprocess(const MpiComm&, Arguments arguments) {
  const std::optional<Options> options = read_options(arguments);
  if (!options.has_value()) return 0;
  {
    const SignalNote note;
    Preprocessor(*options).run();
  }
  if (stop_signal != 0) std::raise(stop_signal);  // as if it had not been caught
  return 0;
}

}  // namespace llmtrain
