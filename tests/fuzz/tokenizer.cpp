// SPDX-License-Identifier: Apache-2.0
/// Fuzz target of the tokenizer files. An input is a kind (j: tokenizer.json, r: rank file, m: merges), the file, a byte
/// 0x1e, and a text to encode with it.
#include <cstdint>
#include <string>
#include <vector>

#include "byte_alphabet.hpp"
#include "files.hpp"
#include "llmtrain/base/error.hpp"
#include "llmtrain/base/json.hpp"
#include "target.hpp"

namespace llmtrain::fuzz {

namespace {

constexpr char separator = '\x1e';

/// vocab.json of the 256 bytes and these tokens.
std::string vocabulary(const std::vector<std::string>& tokens) {
  JsonObject vocab;
  std::int64_t id = 0;
  for (; id < 256; ++id) {
    const char byte = static_cast<char>(id);
    vocab.add(characters_of_bytes({&byte, 1}), id);
  }
  for (const std::string& token : tokens) vocab.add(token, id++);
  return vocab.text();
}

const std::string& plain_vocabulary() {
  static const std::string text = vocabulary({"ab", "abc", "aa"});
  return text;
}

/// The same file with a short word in place of the vocabulary of 256 bytes, which mutations would only destroy.
std::string expanded(std::string_view file) {
  std::string text(file);
  if (const std::size_t at = text.find("\"@\""); at != std::string::npos) text.replace(at, 3, plain_vocabulary());
  return text;
}

BpeParts read(char kind, std::string_view file) {
  if (kind == 'r') return read_rank_file(file, "file", {.pattern = "o200k", .special = {{"<|x|>", 300}}});
  if (kind == 'm') return read_vocab_and_merges(plain_vocabulary(), "file", file, "file", {});
  return read_tokenizer_json(expanded(file), "file", {});
}

/// A sound tokenizer gives ids that it has; without normalization or removal they stand for the same text.
void try_text(const BpeTokenizer& tokenizer, const std::string& text, bool exact) {
  std::vector<std::int32_t> ids, plain;
  tokenizer.encode(text, ids);
  tokenizer.encode_plain(text, plain);
  for (const std::int32_t id : ids) expect(id >= 0 && id < tokenizer.vocab(), "an id outside the vocabulary");
  const std::string back = tokenizer.decode(plain);
  expect(!exact || back == text, "the text changed");
}

}  // namespace

void try_bytes(std::string_view bytes) {
  const char kind = bytes.empty() ? 'j' : bytes[0];
  bytes.remove_prefix(bytes.empty() ? 0 : 1);
  const std::size_t end = std::min(bytes.find(separator), bytes.size());
  const std::string text(bytes.substr(std::min(end + 1, bytes.size())));
  try {
    const BpeTokenizer tokenizer(read(kind, bytes.substr(0, end)), std::nullopt);
    try_text(tokenizer, text, kind == 'r' || kind == 'm');
  } catch (const Error& error) {
    const bool configuration = kind == 'r' && error.code() == ExitCode::configuration;
    expect(error.code() == ExitCode::bad_input || configuration, error.what());
    expect(std::string(error.what()).find("file") != std::string::npos ||
               std::string(error.what()).find("pattern") != std::string::npos,
           error.what());
  }
}

std::vector<std::string> seeds() {
  const std::string head = R"(j{"version":"1.0","truncation":null,"padding":null,"added_tokens":)"
                           R"([{"id":259,"content":"<x>","single_word":true,"lstrip":true,"rstrip":true,)"
                           R"("normalized":false,"special":true}],"normalizer":{"type":"NFC"},"pre_tokenizer":)";
  const std::string tail =
      R"(,"post_processor":null,"decoder":{"type":"ByteLevel"},"model":{"type":"BPE","dropout":null,)"
      R"("unk_token":null,"continuing_subword_prefix":"","end_of_word_suffix":"","fuse_unk":false,)"
      R"("byte_fallback":false,"ignore_merges":true,"vocab":"@","merges":["a b",["ab","c"]]}})";
  const std::string text =
      "\x1e"
      "abc aab <x> e\xCC\x81 \xFF 12345\r\n  x";
  std::string ranks = "r";
  for (int b = 0; b < 256; ++b) {
    constexpr char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    ranks += {digits[b >> 2], digits[(b & 3) << 4], '=', '='};
    fmt::format_to(std::back_inserter(ranks), " {}\n", b);
  }
  return {
      head + R"({"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":true})" + tail + text,
      head +
          R"({"type":"Sequence","pretokenizers":[{"type":"Split","pattern":{"Regex":"\\p{N}{1,3}| ?[a-z]+(?!x)|.$"},)"
          R"("behavior":"MergedWithNext","invert":false},{"type":"Digits","individual_digits":true},)"
          R"({"type":"Split","pattern":{"String":"b"},"behavior":"Contiguous","invert":true},)"
          R"({"type":"ByteLevel","add_prefix_space":true,"trim_offsets":true,"use_regex":false}]})" +
          tail + text,
      "m#version: 0.2\na b\nab c\na a\n" + text,
      ranks + "YWI= 256\nYWJj 257\n" + text,
      "{}",
  };
}

}  // namespace llmtrain::fuzz
