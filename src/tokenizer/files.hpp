// SPDX-License-Identifier: Apache-2.0
/// The kinds of files that describe a BPE tokenizer. Each reader throws Error(bad_input), naming the file and the place, for
/// what is wrong or not known, and leaves nothing out silently.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bpe.hpp"
#include "pre_tokenizer.hpp"

namespace llmtrain {

/// What a deck says about a file that does not say it itself.
struct FileOptions {
  std::string pattern;  ///< a name or an expression; "": the file's own or the usual
  std::vector<std::pair<std::string, std::int64_t>> special;  ///< tokens and ids
};

/// The largest file that is read, in bytes.
inline constexpr std::int64_t largest_tokenizer_file = std::int64_t{256} << 20;

/// Text of a tokenizer file; Error(missing_input), Error(bad_input) if it is too large.
std::string read_tokenizer_file(const std::string& path);

/// Hugging Face tokenizer.json. `special` adds tokens; no pattern.
BpeParts read_tokenizer_json(std::string_view text, const std::string& name, const FileOptions& options);

/// vocab.json and merges.txt, or encoder.json and vocab.bpe, of GPT-2 and its like: the pattern is gpt2 unless given.
BpeParts read_vocab_and_merges(std::string_view vocab, const std::string& vocab_name, std::string_view merges,
                               const std::string& merges_name, const FileOptions& options);

/// A rank file of tiktoken. One of 128,000 ranks is Llama 3's, with its pattern and its 256 special tokens, unless given.
BpeParts read_rank_file(std::string_view text, const std::string& name, const FileOptions& options);

/// Whether a text looks like a rank file.
bool is_rank_file(std::string_view text);

}  // namespace llmtrain
