// SPDX-License-Identifier: Apache-2.0
/// The command line of `llmtrain preprocess`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "llmtrain/tools/json_lines.hpp"
#include "llmtrain/tools/tool.hpp"

namespace llmtrain {

struct PreprocessOptions {
  std::vector<std::string> inputs;
  std::string prefix;
  std::string tokenizer;  ///< as it was written
  std::string eod;
  std::string keys_text = "text";
  std::vector<std::string> keys;
  std::string prompt_key;
  bool append_eod = false;
  std::string special_tokens = "ids";  ///< or "text"
  std::string bad_text = "error";      ///< the name of a BadText
  std::int64_t max_line_bytes = std::int64_t{256} << 20;
  std::int64_t threads = 0;
  std::int64_t trained_vocab = 0;  ///< ids of the tokenizer to train; 0: none, tokens are written
  std::string pattern = "gpt2";    ///< of the tokenizer to train
};

/// Nothing if help was asked for; it is printed where `prints`. Throws Error(usage).
std::optional<PreprocessOptions> read_preprocess_options(Arguments arguments, bool prints);

BadText bad_text_of(const std::string& name);

/// Counts the words of the inputs and writes the tokenizer that they make as P_tokenizer.json, at once or not at all.
void train_tokenizer(const PreprocessOptions& options);

}  // namespace llmtrain
