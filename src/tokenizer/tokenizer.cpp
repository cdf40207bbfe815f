// SPDX-License-Identifier: Apache-2.0
/// The byte tokenizer, and the choice of a tokenizer.
#include "llmtrain/tokenizer/tokenizer.hpp"

#include "llmtrain/base/error.hpp"

namespace llmtrain {
namespace {

/// Byte b is id b; 256 ends a document.
class ByteTokenizer final : public Tokenizer {
 public:
  std::int64_t vocab() const override { return end_of_document + 1; }

  void encode(std::string_view text, std::vector<std::int32_t>& tokens) const override {
    const std::size_t before = tokens.size();
    tokens.resize(before + text.size());
    for (std::size_t i = 0; i < text.size(); ++i) tokens[before + i] = static_cast<unsigned char>(text[i]);
  }

  std::string decode(std::span<const std::int32_t> tokens) const override {
    std::string text;
    text.reserve(tokens.size());
    for (const std::int32_t token : tokens) {
      require(token >= 0 && token <= end_of_document, ExitCode::bad_input,
              "token id {} is outside the byte tokenizer's vocabulary of {}", token, vocab());
      if (token != end_of_document) text.push_back(static_cast<char>(token));
    }
    return text;
  }

  std::optional<std::int32_t> eod() const override { return end_of_document; }
  std::string digest() const override { return "bytes"; }

 private:
  static constexpr std::int32_t end_of_document = 256;
};

}  // namespace

std::unique_ptr<Tokenizer> make_tokenizer(const TokenizerConfig& config) {
  require(config.file == "bytes", ExitCode::configuration,
          "tokenizer '{}' is not built yet; the only one is bytes (byte b is id b, end of document 256)", config.file);
  require(config.pattern.empty() && config.special.empty() && config.eod.empty(), ExitCode::configuration,
          "the bytes tokenizer takes no pattern, special or eod; leave them out");
  return std::make_unique<ByteTokenizer>();
}

}  // namespace llmtrain
