// SPDX-License-Identifier: Apache-2.0
/// Training of byte-level BPE tokenizers.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>

namespace llmtrain {

/// Counts the words of texts, and makes of them the tokenizer that Hugging Face's BpeTrainer makes of the same texts with
/// the whole byte alphabet: the same vocabulary and merges. Counts have 64 bits.
class BpeTrainer {
 public:
  /// `pattern`: a name (gpt2, llama3, o200k, qwen2) or an expression. Throws Error(configuration) for one that cannot be
  /// written into a tokenizer.json.
  explicit BpeTrainer(std::string_view pattern);
  ~BpeTrainer();

  /// Counts a document's words; memory grows with the number of different words only.
  void add(std::string_view text);
  /// Counts a word, as split by the pattern, so many times: for counts that were made elsewhere.
  void add_word(std::string_view word, std::int64_t count) { words_[std::string(word)] += count; }
  const std::unordered_map<std::string, std::int64_t>& words() const { return words_; }

  /// Throws Error(configuration) for what `train` refuses, before texts are counted.
  void check(std::int64_t vocab, std::span<const std::string> special) const;
  /// The text of a tokenizer.json of at most `vocab` ids: `special` tokens, bytes, then merges, fewer where no pair is left.
  /// Depends on the counts only, not on the order of texts. Throws Error(configuration) if the special tokens and the bytes
  /// are more.
  std::string train(std::int64_t vocab, std::span<const std::string> special) const;

 private:
  struct Pattern;
  std::unique_ptr<Pattern> pattern_;
  std::unordered_map<std::string, std::int64_t> words_;
};

}  // namespace llmtrain
