// SPDX-License-Identifier: Apache-2.0
/// Small tokenizer files made in code.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "data_files.hpp"
#include "llmtrain/base/json.hpp"
#include "llmtrain/tokenizer/tokenizer.hpp"

namespace llmtrain {

/// The character that stands for a byte in vocab.json and tokenizer.json.
inline std::string byte_character(int byte) {
  const auto itself = [](int b) { return (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE; };
  int code = byte;
  if (!itself(byte)) {
    code = 0x100;
    for (int b = 0; b < byte; ++b) code += itself(b) ? 0 : 1;
  }
  if (code < 0x80) return {static_cast<char>(code)};
  return {static_cast<char>(0xC0 | code >> 6), static_cast<char>(0x80 | (code & 0x3F))};
}

/// A tokenizer.json: the 256 bytes are ids 0 to 255 in order, further tokens follow.
struct JsonTokenizer {
  std::vector<std::string> tokens;  ///< ids from 256 on
  std::vector<std::pair<std::string, std::string>> merges;
  std::string added = "[]";
  std::string normalizer = "null";
  std::string pre_tokenizer = R"({"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":true})";
  std::string more_model;  ///< further fields of the model, each with a comma behind
  std::string more;        ///< further fields of the file
  bool merges_as_strings = false;

  std::string vocab() const {
    JsonObject vocab;
    std::int64_t id = 0;
    for (; id < 256; ++id) vocab.add(byte_character(static_cast<int>(id)), id);
    for (const std::string& token : tokens) vocab.add(token, id++);
    return vocab.text();
  }
  std::string text() const {
    JsonArray pairs;
    for (const auto& [left, right] : merges) {
      if (merges_as_strings)
        pairs.add(left + " " + right);
      else
        pairs.add(JsonArray().add(left).add(right));
    }
    return R"({"version":"1.0","truncation":null,"padding":null,"added_tokens":)" + added + R"(,"normalizer":)" +
           normalizer + R"(,"pre_tokenizer":)" + pre_tokenizer +
           R"(,"post_processor":null,"decoder":{"type":"ByteLevel"},)" + more + R"("model":{"type":"BPE",)" +
           more_model + R"("vocab":)" + vocab() + R"(,"merges":)" + pairs.text() + "}}";
  }
};

/// One entry of added_tokens.
inline std::string added_token(const std::string& content, std::int64_t id, const std::string& more = "") {
  return "{" + more + JsonObject().add("content", content).add("id", id).text().substr(1);
}

inline std::unique_ptr<Tokenizer> tokenizer_at(const std::string& file) {
  TokenizerConfig config;
  config.file = file;
  return make_tokenizer(config);
}

inline std::unique_ptr<Tokenizer> tokenizer_of(const TestFolder& folder, const JsonTokenizer& json) {
  write_file(folder / "tokenizer.json", json.text());
  return tokenizer_at(folder / "tokenizer.json");
}

using Ids = std::vector<std::int32_t>;

inline Ids ids_of(const Tokenizer& tokenizer, const std::string& text) {
  Ids ids;
  tokenizer.encode(text, ids);
  return ids;
}

}  // namespace llmtrain
