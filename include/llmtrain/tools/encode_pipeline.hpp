// SPDX-License-Identifier: Apache-2.0
/// Lines to tokens on several threads: one reads blocks, several encode them, the caller takes them in order.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "llmtrain/tokenizer/tokenizer.hpp"
#include "llmtrain/tools/json_lines.hpp"
#include "llmtrain/tools/line_blocks.hpp"

namespace llmtrain {

/// How lines become tokens.
struct EncodeSettings {
  std::vector<std::string> keys;
  std::string prompt_key = {};  ///< whose text stands before each key's; empty: none
  BadText bad_text = BadText::error;
  std::int64_t max_line_bytes = 0;
  const Tokenizer* tokenizer = nullptr;
  bool plain_text = false;  ///< special tokens written in the text are text
  std::int32_t eod = -1;    ///< appended to each document that is not empty; -1: none
};

/// One key's documents of a block, back to back.
struct EncodedKey {
  std::vector<std::int32_t> tokens;
  std::vector<std::int64_t> lengths;  ///< of each document; 0: an empty one
  std::vector<std::int32_t> prompts;  ///< tokens of each document's prompt; only with a prompt key
  std::int64_t text_bytes = 0;
  std::int64_t repeated = 0;  ///< lines in which the key stood more than once
};

struct EncodedBlock {
  std::vector<EncodedKey> keys;
  std::int64_t line_bytes = 0;  ///< unpacked
  std::int64_t consumed = 0;    ///< of the input file
  std::int64_t replaced = 0;    ///< lines with bad text that was replaced
  std::int64_t skipped = 0;     ///< lines left out for bad text
};

/// The keys that lines are read for: those of the texts, then the prompt's if there is one.
std::vector<std::string> keys_to_read(const EncodeSettings& settings);

/// Reads lines of `block` with `reader`, made for keys_to_read(). Throws Error(bad_input) naming file, line and byte.
EncodedBlock encode_block(const LineBlock& block, KeyReader& reader, const EncodeSettings& settings);

/// Memory is bounded: reading waits while blocks of some MiB wait to be taken.
class EncodePipeline {
 public:
  /// `settings` must outlive it.
  EncodePipeline(std::vector<InputPart> parts, const EncodeSettings& settings, int workers);
  /// Stops: what was not taken is dropped.
  ~EncodePipeline();
  EncodePipeline(const EncodePipeline&) = delete;
  EncodePipeline& operator=(const EncodePipeline&) = delete;

  enum class Status { block, none_yet, end };

  /// Moves the next block of the input to `block`, if it is ready within `patience`. Throws the Error of whatever failed
  /// first in the order of the input.
  Status take(EncodedBlock& block, std::chrono::milliseconds patience);

 private:
  struct Job {
    LineBlock lines;
    EncodedBlock encoded;
    std::exception_ptr error;
    bool done = false;
  };
  void read();
  void work();

  const EncodeSettings& settings_;
  std::atomic<bool> stop_ = false;
  BlockReader reader_;
  std::size_t most_bytes_;  ///< of lines in work, or one block

  std::mutex mutex_;  ///< guards what follows
  std::condition_variable changed_;
  std::deque<std::shared_ptr<Job>> in_order_;  ///< read and not taken
  std::deque<std::shared_ptr<Job>> to_encode_;
  std::size_t bytes_ = 0;  ///< of lines in in_order_
  bool all_read_ = false;

  std::vector<std::thread> threads_;
};

}  // namespace llmtrain
