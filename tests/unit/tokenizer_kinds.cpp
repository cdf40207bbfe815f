// SPDX-License-Identifier: Apache-2.0
/// Rank files, vocabularies with merges, folders, and which token ends a document; GPT-2's and Llama 3's own files where
/// LLMTRAIN_TEST_DATA names a folder with tokenizers/gpt2 and tokenizers/llama3.
#include <doctest/doctest.h>

#include <cstdlib>

#include "tokenizer_files.hpp"

using namespace llmtrain;

namespace {

/// The 256 bytes as ranks 0 to 255, then these lines.
std::string ranks(const std::string& more) {
  constexpr char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (std::size_t b = 0; b < 256; ++b) text += fmt::format("{}{}== {}\n", digits[b >> 2], digits[(b & 3) << 4], b);
  return text + more;
}

TokenizerConfig config_of(const std::string& file, const std::string& pattern = "") {
  TokenizerConfig config;
  config.file = file;
  config.pattern = pattern;
  return config;
}

}  // namespace

TEST_CASE("a rank file merges neighbours that make a token, whole pieces first") {
  const TestFolder folder;
  write_file(folder / "r", ranks("YWI= 256\nYmM= 257\nYWJjZA== 300\r\n\n"));  // ab, bc, abcd
  TokenizerConfig config = config_of(folder / "r", "gpt2");
  config.special = {{"<|x|>", 301}};
  const auto tokenizer = make_tokenizer(config);
  CHECK(ids_of(*tokenizer, "abc bc") == Ids{256, 'c', ' ', 257});
  CHECK(ids_of(*tokenizer, "abcd<|x|>") == Ids{300, 301});
  CHECK(tokenizer->vocab() == 302);
  CHECK(tokenizer->describe().find("(42 of them holes") != std::string::npos);
  config.special = {{"<|x|>", 256}};
  CHECK_FAILS(make_tokenizer(config), 78, "id 256 belongs to another token");
  CHECK_FAILS(make_tokenizer(config_of(folder / "r")), 78, "has 259 ranks and does not say how text is split");
  CHECK_FAILS(make_tokenizer(config_of(folder / "r", "llama4")), 78, "unknown pattern 'llama4'");
  CHECK_FAILS(make_tokenizer(config_of(folder / "r", "(a")), 78, "'(a' cannot be used");
  CHECK(ids_of(*make_tokenizer(config_of(folder / "r", "[a-z]+|[0-9]")), "ab 12") == Ids{256, '1', '2'});
}

TEST_CASE("mistakes in a rank file are named by line") {
  const TestFolder folder;
  const auto refused = [&](const std::string& more, const std::string& part) {
    write_file(folder / "r", ranks(more));
    CHECK_FAILS(make_tokenizer(config_of(folder / "r", "gpt2")), 65, part);
  };
  refused("YWI 256\n", "r:257: 'YWI 256' is not a token in base64");
  refused("YWI= 256x\n", "r:257");
  refused("YW!= 256\n", "r:257");
  refused("YWI= -1\n", "r:257: a rank may be 0 to");
  refused("YWI= 99999999\n", "r:257: a rank may be 0 to");
  refused("YWI= 255\n", "r:257: the rank 255 or its token 'ab' stands on an earlier line");
  refused("YQ== 256\n", "r:257: the rank 256 or its token 'a' stands on an earlier line");
}

TEST_CASE("a vocabulary with its merges, as a folder or by its name") {
  const TestFolder folder;
  JsonTokenizer json;
  json.tokens = {"ab", "<|endoftext|>"};
  write_file(folder / "vocab.json", json.vocab());
  CHECK_FAILS(tokenizer_at(folder / ""), 66, "there is no merges.txt or vocab.bpe");
  write_file(folder / "merges.txt", "#version: 0.2\na b\n");
  const auto tokenizer = tokenizer_at(folder / "");
  CHECK(ids_of(*tokenizer, "ab<|endoftext|>") == Ids{256, 257});
  CHECK(tokenizer->eod() == 257);
  CHECK(tokenizer->decode(Ids{256, 257}) == "ab");
  CHECK(tokenizer_at(folder / "vocab.json")->digest() == tokenizer->digest());
  write_file(folder / "merges.txt", "#version: 0.2\na b\na b c\n");
  CHECK_FAILS(tokenizer_at(folder / ""), 65, "merges.txt:3: 'a b c' is not two tokens");
  write_file(folder / "merges.txt", "b a\n");
  CHECK_FAILS(tokenizer_at(folder / ""), 65, "merges.txt:1: 'b' 'a': the vocabulary has no token 'ba'");
}

TEST_CASE("the end of a document: as said, as configured beside, or the only usual one (B15)") {
  const TestFolder folder;
  JsonTokenizer json;
  json.added =
      "[" + added_token("<|endoftext|>", 256) + "," + added_token("</s>", 257) + "," + added_token("<e>", 258) + "]";
  CHECK(!tokenizer_of(folder, json)->eod().has_value());
  TokenizerConfig config = config_of(folder / "tokenizer.json");
  config.eod = "</s>";
  CHECK(make_tokenizer(config)->eod() == 257);
  config.eod = "<none>";
  CHECK_FAILS(make_tokenizer(config), 78, "the end-of-document token '<none>' is not in");
  write_file(folder / "tokenizer_config.json", R"({"eos_token": {"content": "<e>", "lstrip": false}, "other": 1})");
  CHECK(tokenizer_of(folder, json)->eod() == 258);
  write_file(folder / "tokenizer_config.json", R"({"eos_token": "<f>"})");
  CHECK_FAILS(tokenizer_of(folder, json), 65, "eos_token '<f>'");
  std::filesystem::remove(folder / "tokenizer_config.json");
  json.added = "[" + added_token("</s>", 256) + "]";
  CHECK(tokenizer_of(folder, json)->eod() == 256);
  CHECK_FAILS(make_tokenizer(config_of(folder / "tokenizer.json", "gpt2")), 78, "has a pattern of its own");
}

TEST_CASE(
    "bytes come back one by one, also of half a character (B12), and every order of merges ranks is digested (F24)") {
  const TestFolder folder;
  JsonTokenizer json;
  json.tokens = {"ab", "bc"};
  json.merges = {{"a", "b"}, {"b", "c"}};
  const auto tokenizer = tokenizer_of(folder, json);
  const std::string emoji = "\U0001F600";
  std::size_t bytes = 0;
  for (const std::int32_t id : ids_of(*tokenizer, emoji)) bytes += tokenizer->decode(Ids{id}).size();
  CHECK(bytes == emoji.size());
  for (const std::string bad : {"\xFF\xFE\x80", "a\xE2\x82", "\xC0\xAF", "\xED\xA0\x80", "\xF4\x90\x80\x80"})
    CHECK(tokenizer->decode(ids_of(*tokenizer, bad)) == bad);
  std::swap(json.merges[0], json.merges[1]);
  CHECK(tokenizer_of(folder, json)->digest() != tokenizer->digest());
}

TEST_CASE("one long word takes the time of many short ones (B09)") {
  const TestFolder folder;
  JsonTokenizer json;
  json.tokens = {"aa", "aaaa", "aaaaaaaa"};
  json.merges = {{"a", "a"}, {"aa", "aa"}, {"aaaa", "aaaa"}};
  const auto tokenizer = tokenizer_of(folder, json);
  const std::string text(1'000'003, 'a');  // takes minutes where merging is quadratic
  const Ids ids = ids_of(*tokenizer, text);
  CHECK(ids.size() == 125'002);
  CHECK(ids.front() == 258);
  CHECK(ids.back() == 'a');
  CHECK(tokenizer->decode(ids) == text);
}

TEST_CASE("GPT-2's and Llama 3's own files") {
  const char* data = std::getenv("LLMTRAIN_TEST_DATA");
  if (data == nullptr) {
    MESSAGE("skipped: LLMTRAIN_TEST_DATA names no folder with tokenizers/gpt2 and tokenizers/llama3");
    return;
  }
  const auto gpt2 = tokenizer_at(std::string(data) + "/tokenizers/gpt2");
  CHECK(gpt2->vocab() == 50257);
  CHECK(gpt2->eod() == 50256);
  CHECK(ids_of(*gpt2, "Hello world, it's 2024!") == Ids{15496, 995, 11, 340, 338, 48609, 0});
  const auto llama3 = tokenizer_at(std::string(data) + "/tokenizers/llama3/tokenizer.model");
  CHECK(llama3->vocab() == 128256);
  CHECK(llama3->eod() == 128001);
  CHECK(ids_of(*llama3, "<|begin_of_text|><|eot_id|><|reserved_special_token_250|>") == Ids{128000, 128009, 128255});
  CHECK(ids_of(*llama3, "Hello world, it's 2024!") == Ids{9906, 1917, 11, 433, 596, 220, 2366, 19, 0});
  CHECK(ids_of(*llama3, " Vi\u1EC7t") == Ids{101798});
}
