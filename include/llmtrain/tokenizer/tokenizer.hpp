// SPDX-License-Identifier: Apache-2.0
/// Text to token ids and back.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "llmtrain/config/deck.hpp"

namespace llmtrain {

/// A tokenizer; immutable, so threads may share it.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  /// Number of ids: every id is in [0, vocab()).
  virtual std::int64_t vocab() const = 0;
  /// Appends the ids of `text` to `tokens`, with no id added before or after; special tokens written in the text become
  /// their ids. The text should be UTF-8; bytes that are not are encoded as they are.
  virtual void encode(std::string_view text, std::vector<std::int32_t>& tokens) const = 0;
  /// The same, but special tokens written in the text are text like any other.
  virtual void encode_plain(std::string_view text, std::vector<std::int32_t>& tokens) const { encode(text, tokens); }
  /// Bytes of the ids; an end of document has none. Throws Error(bad_input) for an id that the vocabulary does not have.
  virtual std::string decode(std::span<const std::int32_t> tokens) const = 0;
  /// The id that ends a document, if there is one.
  virtual std::optional<std::int32_t> eod() const = 0;
  /// Equal for tokenizers that give equal ids; recorded beside data and in checkpoints.
  virtual std::string digest() const = 0;
  /// What it is, in a line for people.
  virtual std::string describe() const = 0;
};

/// What ends a document if neither the deck nor a tokenizer_config.json says it and only one of these is a token.
inline constexpr std::array<std::string_view, 3> usual_ends_of_document = {"<|endoftext|>", "<|end_of_text|>", "</s>"};

/// Makes the tokenizer of `data.tokenizer` or `--tokenizer`: `bytes`; a tokenizer.json; a rank file of tiktoken, its lines
/// a token in base64 and its rank; or a folder, or the file in it, of vocab.json or encoder.json and merges.txt or
/// vocab.bpe (a folder with a tokenizer.json or a tokenizer.model is read as that file). Throws Error(configuration) for
/// options that do not suit the file, Error(missing_input) or Error(bad_input) for files.
std::unique_ptr<Tokenizer> make_tokenizer(const TokenizerConfig& config);

}  // namespace llmtrain
