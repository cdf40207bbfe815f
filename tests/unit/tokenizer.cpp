// SPDX-License-Identifier: Apache-2.0
/// The byte tokenizer, and how tokenizers are named.
#include "llmtrain/tokenizer/tokenizer.hpp"

#include <doctest/doctest.h>

#include "data_files.hpp"
#include "llmtrain/config/read.hpp"

using namespace llmtrain;

TEST_CASE("bytes are their own ids, and every byte comes back") {
  const auto tokenizer = make_tokenizer({});
  CHECK(tokenizer->vocab() == 257);
  CHECK(tokenizer->eod() == 256);
  std::string all;
  for (int b = 0; b < 256; ++b) all.push_back(static_cast<char>(b));
  std::vector<std::int32_t> tokens = {9};
  tokenizer->encode(all, tokens);
  REQUIRE(tokens.size() == 257);
  CHECK(tokens[0] == 9);
  for (std::int32_t b = 0; b < 256; ++b) CHECK(tokens[static_cast<std::size_t>(b) + 1] == b);
  CHECK(tokenizer->decode(std::span(tokens).subspan(1)) == all);
}

TEST_CASE("an end of document has no text, other ids are refused") {
  const auto tokenizer = make_tokenizer({});
  CHECK(tokenizer->decode(std::vector<std::int32_t>{104, 105, 256}) == "hi");
  CHECK_FAILS(tokenizer->decode(std::vector<std::int32_t>{257}), 65, "257");
  CHECK_FAILS(tokenizer->decode(std::vector<std::int32_t>{-1}), 65, "-1");
}

TEST_CASE("the byte tokenizer takes no options, and files must be there") {
  TokenizerConfig config;
  config.file = "none/tokenizer.json";
  CHECK_FAILS(make_tokenizer(config), 66, "none/tokenizer.json");
  config.file = "bytes";
  config.eod = "</s>";
  CHECK_FAILS(make_tokenizer(config), 78, "eod");
}

TEST_CASE("--tokenizer is read as data.tokenizer is") {
  CHECK(parse_tokenizer("bytes").file == "bytes");
  CHECK(parse_tokenizer("data/my tokenizer.json").file == "data/my tokenizer.json");
  const TokenizerConfig map = parse_tokenizer("{file: F, pattern: gpt2, special: {'<|x|>': 7}, eod: '<|x|>'}");
  CHECK(map.file == "F");
  CHECK(map.pattern == "gpt2");
  CHECK(map.special.at(0) == std::pair<std::string, std::int64_t>("<|x|>", 7));
  CHECK(map.eod == "<|x|>");
  CHECK_FAILS(parse_tokenizer("{file: F, specail: {}}"), 78, "did you mean 'special'?");
  CHECK_FAILS(parse_tokenizer("{file: "), 78, "--tokenizer");
}
