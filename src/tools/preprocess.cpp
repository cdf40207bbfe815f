// SPDX-License-Identifier: Apache-2.0
/// JSON lines -> tokens -> .bin/.idx on threads and ranks, one pass, bounded memory, all files or none.
#include <signal.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <memory>
#include <optional>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "llmtrain/base/agree.hpp"
#include "llmtrain/base/clock.hpp"
#include "llmtrain/base/error.hpp"
#include "llmtrain/base/text.hpp"
#include "llmtrain/config/read.hpp"
#include "llmtrain/data/indexed_dataset_writer.hpp"
#include "llmtrain/data/prompt_lengths.hpp"
#include "llmtrain/data/sidecar.hpp"
#include "llmtrain/driver/resolve.hpp"
#include "llmtrain/tokenizer/tokenizer.hpp"
#include "llmtrain/tools/encode_pipeline.hpp"
#include "llmtrain/tools/tool.hpp"
#include "preprocess_options.hpp"
#include "preprocess_rounds.hpp"

namespace llmtrain {
namespace {

/// Runs `call`; what it throws, all ranks throw together. Collective.
template <class Call>
void together(const MpiComm& world, Call call) {
  if (world) {
    agree(world, call);
  } else {
    call();
  }
}

/// What rank 0 found, on all ranks. Collective.
std::vector<InputFileFacts> share_inputs(const MpiComm& world, const std::vector<std::string>& names) {
  std::vector<InputFileFacts> inputs;
  together(world, [&] {
    if (!world || world.rank() == 0) inputs = find_inputs(names);
  });
  if (!world) return inputs;
  std::string text;
  for (const InputFileFacts& input : inputs) {
    text += fmt::format("{} {} {}", input.bytes, input.divisible ? 1 : 0, input.path) + '\0';
  }
  text = world.broadcast(text, 0);
  inputs.clear();
  for (std::size_t begin = 0, end; begin < text.size(); begin = end + 1) {
    end = text.find('\0', begin);
    const std::size_t first = text.find(' ', begin), second = text.find(' ', first + 1);
    inputs.push_back({text.substr(second + 1, end - second - 1), std::stoll(text.substr(begin, first - begin)),
                      text[first + 1] == '1'});
  }
  return inputs;
}

// Short, for the last rank to end waits for the others twice.
constexpr auto longest_pause = std::chrono::milliseconds(16);

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

/// The output of one key.
struct Output {
  Output(const PreprocessOptions& options, const std::string& key, const Tokenizer& tokenizer)
      : prefix(options.prefix + "_" + key + "_document"), writer(prefix, tokenizer.vocab()) {
    if (!options.prompt_key.empty()) prompts.emplace(prompts_of(prefix), TokenType::int32);
  }

  std::vector<IndexedDatasetWriter*> writers() {
    if (prompts) return {&*prompts, &writer};
    return {&writer};
  }

  std::string prefix;
  IndexedDatasetWriter writer;
  std::optional<IndexedDatasetWriter> prompts;  ///< their lengths
  std::int64_t empty = 0;
  std::int64_t repeated = 0;
  std::int64_t text_bytes = 0;
};

class Preprocessor {
 public:
  Preprocessor(const MpiComm& world, const PreprocessOptions& options)
      : world_(world), options_(options), rounds_(world) {
    together(world, [&] {
      TokenizerConfig config = parse_tokenizer(options.tokenizer);
      if (!options.eod.empty()) config.eod = options.eod;
      tokenizer_ = make_tokenizer(config);
      settings_ = {.keys = options.keys,
                   .prompt_key = options.prompt_key,
                   .bad_text = bad_text_of(options.bad_text),
                   .max_line_bytes = options.max_line_bytes,
                   .tokenizer = tokenizer_.get(),
                   .plain_text = options.special_tokens == "text"};
      if (!options.append_eod) return;
      const auto eod = tokenizer_->eod();
      require(eod.has_value(), ExitCode::usage,
              "preprocess --append-eod: tokenizer {} has no end-of-document token; name one with --eod",
              options.tokenizer);
      settings_.eod = *eod;
    });
    inputs_ = share_inputs(world, options.inputs);
    for (const InputFileFacts& input : inputs_) {
      input_bytes_ += input.bytes;
      has_pipe_ = has_pipe_ || (input.bytes == 0 && !input.divisible);
    }
    together(world, [&] {
      for (const std::string& key : options.keys) {
        outputs_.push_back(std::make_unique<Output>(options, key, *tokenizer_));
      }
    });
  }

  /// Publishes the files, or after a signal nothing; returns the signal.
  int run() {
    std::exception_ptr error;
    try {
      encode_part();
    } catch (...) {
      error = std::current_exception();
      if (world_ && world_.size() > 1) wait_for_others(true);
    }
    together(world_, [&] {
      if (error) std::rethrow_exception(error);
    });
    if (const auto signal = static_cast<int>(rounds_.head(Rounds::signal)); signal != 0) return signal;
    join_parts();
    together(world_, [&] {
      if (is_first()) finish();
    });
    if (is_first()) report();
    return 0;
  }

 private:
  bool is_first() const { return !world_ || world_.rank() == 0; }

  /// This rank's share of the inputs, to its own files.
  void encode_part() {
    const int ranks = world_ ? world_.size() : 1;
    const MpiComm node = world_ ? world_.split_by_node() : MpiComm{};
    EncodePipeline pipeline(deal_inputs(inputs_, world_ ? world_.rank() : 0, ranks), settings_,
                            thread_count(static_cast<int>(options_.threads), node));
    EncodedBlock block;
    for (;;) {
      const auto status = pipeline.take(block, std::chrono::milliseconds(100));
      if (status == EncodePipeline::Status::end) break;
      if (status == EncodePipeline::Status::block) add(block);
      if (tell(true)) return;
    }
    wait_for_others(false);
  }

  void wait_for_others(bool failed) {
    auto pause = std::chrono::milliseconds(1);
    for (;; pause = std::min(2 * pause, longest_pause)) {
      rounds_.exchange(stop_signal, failed, false, counts_);
      if (rounds_.is_over()) return;
      show_progress();
      if (!ranks_are_one()) std::this_thread::sleep_for(pause);  // MPI would wait with a busy core
    }
  }

  /// Now and then; true if all have to stop.
  bool tell(bool busy) {
    if (round_.seconds() >= 1 || (stop_signal != 0 && ranks_are_one())) {
      round_.restart();
      rounds_.exchange(stop_signal, false, busy, counts_);
      show_progress();
    }
    return rounds_.is_over();
  }
  bool ranks_are_one() const { return !world_ || world_.size() == 1; }

  void add(const EncodedBlock& block) {
    for (std::size_t i = 0; i < outputs_.size(); ++i) {
      const EncodedKey& key = block.keys[i];
      Output& output = *outputs_[i];
      std::span<const std::int32_t> tokens(key.tokens);
      for (std::size_t d = 0; d < key.lengths.size(); ++d) {
        const auto count = static_cast<std::size_t>(key.lengths[d]);
        if (count > 0) output.writer.add_sequence(tokens.first(count));
        if (count > 0 && output.prompts) output.prompts->add_sequence(std::span(key.prompts).subspan(d, 1));
        tokens = tokens.subspan(count);
        for (IndexedDatasetWriter* writer : output.writers()) writer->end_document();
        output.empty += count == 0 ? 1 : 0;
      }
      output.repeated += key.repeated;
      output.text_bytes += key.text_bytes;
    }
    counts_.consumed += block.consumed;
    counts_.line_bytes += block.line_bytes;
    counts_.documents = outputs_.front()->writer.documents();
    counts_.tokens = outputs_.front()->writer.tokens();
    replaced_ += block.replaced;
    skipped_ += block.skipped;
  }

  /// Brings all ranks' parts and counts to rank 0, in order of ranks. Collective.
  void join_parts() {
    if (!world_ || world_.size() == 1) return;
    for (const auto& output : outputs_) {
      for (IndexedDatasetWriter* writer : output->writers()) join(*writer, output->prefix);
      std::array<std::int64_t, 3> sums = {output->empty, output->repeated, output->text_bytes};
      world_.all_reduce(sums, MpiOp::sum);
      std::tie(output->empty, output->repeated, output->text_bytes) = std::tie(sums[0], sums[1], sums[2]);
    }
    std::array<std::int64_t, 3> sums = {replaced_, skipped_, counts_.line_bytes};
    world_.all_reduce(sums, MpiOp::sum);
    std::tie(replaced_, skipped_, counts_.line_bytes) = std::tie(sums[0], sums[1], sums[2]);
  }

  void join(IndexedDatasetWriter& writer, const std::string& prefix) {
    together(world_, [&] {
      if (!is_first()) writer.finish(Lasts::no);
    });
    const auto bins = world_.all_gather(writer.files()[0]->temporary());
    const auto indices = world_.all_gather(writer.files()[1]->temporary());
    together(world_, [&] {
      for (std::size_t rank = 1; is_first() && rank < bins.size(); ++rank) {
        writer.append(IndexedDataset(prefix, indices[rank], bins[rank]));
      }
    });
  }

  Sidecar sidecar_of(const Output& output, const std::string& key) const {
    Sidecar sidecar;
    for (const InputFileFacts& input : inputs_) sidecar.inputs.push_back(input.path);
    sidecar.key = key;
    sidecar.prompt_key = options_.prompt_key;
    sidecar.special_tokens = options_.special_tokens;
    sidecar.tokenizer = tokenizer_->digest();
    sidecar.vocab = tokenizer_->vocab();
    sidecar.eod = settings_.eod;
    sidecar.bad_text = options_.bad_text;
    sidecar.replaced_lines = replaced_;
    sidecar.skipped_lines = skipped_;
    sidecar.documents = output.writer.documents();
    sidecar.empty_documents = output.empty;
    sidecar.repeated_keys = output.repeated;
    sidecar.sequences = output.writer.sequences();
    sidecar.tokens = output.writer.tokens();
    sidecar.text_bytes = output.text_bytes;
    sidecar.max_token = output.writer.max_token();
    return sidecar;
  }

  void finish() {
    std::vector<std::unique_ptr<OutputFile>> sidecars;
    std::vector<OutputFile*> files;
    for (std::size_t i = 0; i < outputs_.size(); ++i) {
      Output& output = *outputs_[i];
      for (IndexedDatasetWriter* writer : output.writers()) writer->finish();
      sidecars.push_back(std::make_unique<OutputFile>(output.prefix + ".json"));
      const std::string json = to_json(sidecar_of(output, options_.keys[i]));
      sidecars.back()->append(std::as_bytes(std::span(json)));
      files.push_back(sidecars.back().get());
      for (IndexedDatasetWriter* writer : output.writers()) {
        for (OutputFile* file : writer->files()) files.push_back(file);
      }
    }
    publish(files);
  }

  /// A line every few seconds on the error stream.
  void show_progress() {
    if (!is_first() || shown_.seconds() < 5) return;
    shown_.restart();
    const Counts all = rounds_.sum();
    const double seconds = watch_.seconds();
    const double done = static_cast<double>(all.consumed) / std::max(static_cast<double>(input_bytes_), 1.0);
    const std::string eta = has_pipe_ || done <= 0 ? "unknown" : duration(std::max(seconds * (1 / done - 1), 0.0));
    fmt::print(stderr, "preprocess: {}{} documents, {} tokens, {:.1f} MB/s, {:.0f} documents/s, eta {}\n",
               has_pipe_ ? "" : fmt::format("{:.1f}%, ", 100 * std::min(done, 1.0)), grouped(all.documents),
               grouped(all.tokens), static_cast<double>(all.line_bytes) * 1e-6 / seconds,
               static_cast<double>(all.documents) / seconds, eta);
  }

  /// One line a key, and what was unusual.
  void report() const {
    const double seconds = std::max(watch_.seconds(), 1e-9);
    for (const auto& output : outputs_) {
      const IndexedDatasetWriter& writer = output->writer;
      fmt::print("{}: {} documents ({} empty), {} tokens, {:.1f} MB/s, {:.0f} documents/s\n", output->prefix,
                 writer.documents(), output->empty, writer.tokens(),
                 static_cast<double>(counts_.line_bytes) * 1e-6 / seconds,
                 static_cast<double>(writer.documents()) / seconds);
      if (output->repeated > 0)
        fmt::print("  lines that repeat the key: {}; their last value was taken\n", output->repeated);
    }
    if (replaced_ > 0) fmt::print("  lines with bad text that became U+FFFD: {}\n", replaced_);
    if (skipped_ > 0) fmt::print("  lines left out for bad text: {}\n", skipped_);
  }

  const MpiComm& world_;
  const PreprocessOptions& options_;
  Rounds rounds_;
  std::unique_ptr<Tokenizer> tokenizer_;
  EncodeSettings settings_;
  std::vector<InputFileFacts> inputs_;
  std::int64_t input_bytes_ = 0;
  bool has_pipe_ = false;
  std::vector<std::unique_ptr<Output>> outputs_;
  Counts counts_;  ///< of this rank
  std::int64_t replaced_ = 0;
  std::int64_t skipped_ = 0;
  Stopwatch watch_, round_, shown_;
};

}  // namespace

int tool_preprocess(const MpiComm& world, Arguments arguments) {
  std::optional<PreprocessOptions> options;
  together(world, [&] { options = read_preprocess_options(arguments, !world || world.rank() == 0); });
  if (!options.has_value()) return 0;
  if (options->trained_vocab != 0) {
    together(world, [&] {
      if (!world || world.rank() == 0) train_tokenizer(*options);
    });
    return 0;
  }
  int signal = 0;
  {
    const SignalNote note;
    signal = Preprocessor(world, *options).run();
  }
  if (signal != 0) std::raise(signal);  // as if it had not been caught
  return 0;
}

}  // namespace llmtrain
