// SPDX-License-Identifier: Apache-2.0
/// The byte tokenizer, and the choice of a tokenizer by its file.
#include "llmtrain/tokenizer/tokenizer.hpp"

#include <algorithm>
#include <filesystem>

#include "json_view.hpp"
#include "llmtrain/base/error.hpp"
#include "llmtrain/base/files.hpp"
#include "parts.hpp"

namespace llmtrain {
namespace {

namespace fs = std::filesystem;

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
  std::string describe() const override { return "bytes: 257 ids, end of document 256"; }

 private:
  static constexpr std::int32_t end_of_document = 256;
};

/// The first of these files that is in the folder; "" if none is.
std::string first_file(const std::string& folder, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    const fs::path path = fs::path(folder) / name;
    std::error_code ignored;
    if (fs::exists(path, ignored)) return path.string();
  }
  return {};
}

BpeParts read_pair(const std::string& vocab, const FileOptions& options) {
  const std::string folder = folder_of(vocab);
  const std::string merges = first_file(folder, {"merges.txt", "vocab.bpe"});
  require(!merges.empty(), ExitCode::missing_input, "{} needs its merges: there is no merges.txt or vocab.bpe in {}",
          vocab, folder);
  return read_vocab_and_merges(read_tokenizer_file(vocab), vocab, read_tokenizer_file(merges), merges, options);
}

BpeParts read_parts(const std::string& file, const FileOptions& options) {
  const std::string name = fs::path(file).filename().string();
  if (name == "vocab.json" || name == "encoder.json") return read_pair(file, options);
  const std::string text = read_tokenizer_file(file);
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  if (first != std::string::npos && text[first] == '{') return read_tokenizer_json(text, file, options);
  require(is_rank_file(text), ExitCode::bad_input,
          "{}: is neither a tokenizer.json nor a rank file of tiktoken (lines of a token in base64 and a rank); a "
          "vocabulary with merges is named by its vocab.json or its folder, and SentencePiece models are not supported",
          file);
  return read_rank_file(text, file, options);
}

/// The file that describes the tokenizer at `path`.
std::string tokenizer_file(const std::string& path) {
  std::error_code ignored;
  if (!fs::is_directory(path, ignored)) return path;
  const std::string file = first_file(path, {"tokenizer.json", "vocab.json", "encoder.json", "tokenizer.model"});
  require(!file.empty(), ExitCode::missing_input,
          "no tokenizer in the folder {}: it holds no tokenizer.json, vocab.json, encoder.json or tokenizer.model",
          path);
  return file;
}

/// Id of the token of this text, added tokens first.
std::int32_t token_of(const BpeParts& parts, std::string_view text) {
  for (const AddedToken& token : parts.added) {
    if (token.content == text) return token.id;
  }
  return parts.vocabulary.id_of(text);
}

/// eos_token of the tokenizer_config.json beside `file`, if there is one.
std::optional<std::string> configured_end(const std::string& file) {
  const std::string config = first_file(folder_of(file), {"tokenizer_config.json"});
  if (config.empty()) return std::nullopt;
  simdjson::dom::parser parser;
  const std::string text = read_tokenizer_file(config);
  const JsonView root = parse_json(parser, text, config);
  if (!root.has("eos_token")) return std::nullopt;
  const JsonView eos = root.field("eos_token");
  return std::string(eos.is_object() ? eos.field("content").string() : eos.string());
}

std::optional<std::int32_t> end_of_document(const BpeParts& parts, const std::string& file, const std::string& given) {
  if (!given.empty()) {
    const std::int32_t id = token_of(parts, given);
    require(id != Vocabulary::none, ExitCode::configuration, "the end-of-document token '{}' is not in {}", given,
            file);
    return id;
  }
  if (const auto configured = configured_end(file)) {
    const std::int32_t id = token_of(parts, *configured);
    require(id != Vocabulary::none, ExitCode::bad_input,
            "{}: eos_token '{}' of the tokenizer_config.json beside it is not in the vocabulary", file, *configured);
    return id;
  }
  std::optional<std::int32_t> end;
  for (const std::string_view usual : usual_ends_of_document) {
    const std::int32_t id = token_of(parts, usual);
    if (id == Vocabulary::none) continue;
    if (end.has_value()) return std::nullopt;  // which one cannot be known
    end = id;
  }
  return end;
}

}  // namespace

std::unique_ptr<Tokenizer> make_tokenizer(const TokenizerConfig& config) {
  if (config.file == "bytes") {
    require(config.pattern.empty() && config.special.empty() && config.eod.empty(), ExitCode::configuration,
            "the bytes tokenizer takes no pattern, special or eod; leave them out");
    return std::make_unique<ByteTokenizer>();
  }
  const std::string file = tokenizer_file(config.file);
  BpeParts parts = read_parts(file, {config.pattern, config.special});
  const auto end = end_of_document(parts, file, config.eod);
  return std::make_unique<BpeTokenizer>(std::move(parts), end);
}

}  // namespace llmtrain
