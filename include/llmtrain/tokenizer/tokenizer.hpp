// SPDX-License-Identifier: Apache-2.0
/// Text to token ids and back.
#pragma once

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
  /// Appends the ids of `text` to `tokens`, with no id added before or after.
  virtual void encode(std::string_view text, std::vector<std::int32_t>& tokens) const = 0;
  /// Bytes of the ids; an end of document has none. Throws Error(bad_input) for an id outside the vocabulary.
  virtual std::string decode(std::span<const std::int32_t> tokens) const = 0;
  /// The id that ends a document, if there is one.
  virtual std::optional<std::int32_t> eod() const = 0;
  /// Equal for tokenizers that give equal ids; recorded beside data and in checkpoints.
  virtual std::string digest() const = 0;
};

/// Makes the tokenizer of `data.tokenizer` or `--tokenizer`. Throws Error(configuration) for one that is not built yet.
std::unique_ptr<Tokenizer> make_tokenizer(const TokenizerConfig& config);

}  // namespace llmtrain
