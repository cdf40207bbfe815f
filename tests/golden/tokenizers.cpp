// SPDX-License-Identifier: Apache-2.0
/// Ids against PyPI's `tokenizers` and `tiktoken`, and merges against BpeTrainer's (tokenizers.py, which wrote the file read
/// here).
#include <doctest/doctest.h>
#include <simdjson.h>

#include <string>
#include <vector>

#include "lcg.hpp"
#include "llmtrain/base/json.hpp"
#include "llmtrain/tokenizer/tokenizer.hpp"
#include "llmtrain/tokenizer/train.hpp"
#include "unit/data_files.hpp"

using namespace llmtrain;

namespace {

namespace json = simdjson::dom;

using Ids = std::vector<std::int32_t>;

std::string string(const json::element& value) { return std::string(std::string_view(value)); }

std::vector<std::string> strings(const json::element& list) {
  std::vector<std::string> values;
  for (const json::element value : json::array(list)) values.emplace_back(std::string_view(value));
  return values;
}

std::string utf8(std::uint32_t code) {
  const auto tail = [](std::uint32_t bits) { return static_cast<char>(0x80 | (bits & 0x3F)); };
  if (code < 0x80) return {static_cast<char>(code)};
  if (code < 0x800) return {static_cast<char>(0xC0 | code >> 6), tail(code)};
  if (code < 0x10000) return {static_cast<char>(0xE0 | code >> 12), tail(code >> 6), tail(code)};
  return {static_cast<char>(0xF0 | code >> 18), tail(code >> 12), tail(code >> 6), tail(code)};
}

bool is_surrogate(std::uint32_t code) { return code >= 0xD800 && code < 0xE000; }

/// FNV-1a over the ids of texts, with a mark behind each text.
class TextDigest {
 public:
  explicit TextDigest(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}

  void add(const std::string& text) {
    ids_.clear();
    tokenizer_.encode(text, ids_);
    for (const std::int32_t id : ids_) add_number(static_cast<std::uint32_t>(id));
    add_number(0xFFFFFFFF);
  }
  std::uint64_t value() const { return value_; }

 private:
  void add_number(std::uint32_t number) { value_ = (value_ ^ number) * 1099511628211u; }

  const Tokenizer& tokenizer_;
  Ids ids_;
  std::uint64_t value_ = 14695981039346656037u;
};

std::uint64_t digest_of_scalars(const Tokenizer& tokenizer, const std::vector<std::string>& neighbours) {
  TextDigest digest(tokenizer);
  for (std::uint32_t c = 0; c < 0x110000; ++c) {
    if (is_surrogate(c) || !(c < 0x3100 || (c >= 0xA000 && c < 0xAC00) || c % 61 == 0)) continue;
    const std::string character = utf8(c);
    digest.add(character);
    std::string text;
    for (const std::string& n : neighbours) text += n + character + n;
    digest.add(text);
  }
  return digest.value();
}

std::uint64_t digest_of_classes(const Tokenizer& tokenizer, const std::vector<std::string>& classes) {
  TextDigest digest(tokenizer);
  for (const std::string& a : classes) {
    for (const std::string& b : classes) digest.add(a + b);
  }
  for (const std::string& a : classes) {
    for (const std::string& b : classes) {
      for (const std::string& c : classes) digest.add(a + b + c);
    }
  }
  return digest.value();
}

std::uint64_t digest_of_random(const Tokenizer& tokenizer, std::int64_t texts) {
  TextDigest digest(tokenizer);
  Lcg numbers(1);
  for (std::int64_t t = 0; t < texts; ++t) {
    std::string text;
    for (std::int64_t left = numbers.next() % 40; left > 0; --left) {
      const std::int64_t kind = numbers.next() % 4, number = numbers.next();
      const auto code = static_cast<std::uint32_t>(number % (kind < 2 ? 128 : kind == 2 ? 0x3000 : 0x110000));
      text += is_surrogate(code) ? "\uFFFD" : utf8(code);
    }
    digest.add(text);
  }
  return digest.value();
}

/// A vocabulary, and the merges of pairs of its tokens.
struct Model {
  std::vector<std::string> names;
  std::string merges;

  explicit Model(const json::element& golden)
      : names(strings(golden["vocab"])), merges(simdjson::to_string(golden["merges"])) {}

  std::string vocab() const {
    JsonObject object;
    for (std::size_t id = 0; id < names.size(); ++id) object.add(names[id], static_cast<std::int64_t>(id));
    return object.text();
  }
};

/// The tokenizer.json as `tokenizers` wrote it, whose vocabulary and merges stand elsewhere in the golden file.
std::string json_file(const json::element& kind, const Model& model) {
  std::string text = simdjson::to_string(kind["file"]);
  const auto replace = [&](const std::string& empty, const std::string& full) {
    const std::size_t at = text.find(empty);
    REQUIRE(at != std::string::npos);
    text.replace(at, empty.size(), full);
  };
  replace("\"merges\":[]", "\"merges\":" + model.merges);
  replace("\"vocab\":{}", "\"vocab\":" + model.vocab());
  return text;
}

std::string base64(const std::string& bytes) {
  constexpr char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    std::uint32_t bits = 0;
    for (std::size_t j = i; j < i + 3; ++j)
      bits = bits << 8 | (j < bytes.size() ? static_cast<unsigned char>(bytes[j]) : 0u);
    for (std::size_t j = 0; j < 4; ++j) text += i + j > bytes.size() ? '=' : digits[bits >> (18 - 6 * j) & 63];
  }
  return text;
}

/// The rank file of the same vocabulary: the bytes of each id as `decoder`, its tokenizer, has them.
std::string rank_file(const Tokenizer& decoder) {
  std::string lines;
  for (std::int32_t id = 0; id < decoder.vocab(); ++id) {
    if (id != decoder.eod()) lines += base64(decoder.decode(Ids{id})) + " " + std::to_string(id) + "\n";
  }
  return lines;
}

}  // namespace

TEST_CASE("ids are those of tokenizers and tiktoken") {
  json::parser parser;
  const json::element golden = parser.load(LLMTRAIN_GOLDEN_FOLDER "/tokenizers.json");
  const Model model(golden);
  const std::string special = string(golden["special"]);
  const std::vector<std::string> texts = strings(golden["texts"]);
  const TestFolder folder;
  std::unique_ptr<Tokenizer> first;
  int kinds = 0;
  for (const json::element kind : json::array(golden["kinds"])) {
    const std::string name = string(kind["kind"]), pattern = string(kind["pattern"]);
    CAPTURE(name);
    CAPTURE(pattern);
    TokenizerConfig config;
    config.file = folder / "tokenizer";
    if (name == "ranks") {
      REQUIRE(first != nullptr);
      config.pattern = pattern;
      config.special = {{special, *first->eod()}};
      write_file(config.file, rank_file(*first));
    } else {
      write_file(config.file, json_file(kind, model));
    }
    std::unique_ptr<Tokenizer> tokenizer = make_tokenizer(config);
    CHECK(tokenizer->vocab() == std::ssize(model.names));
    std::size_t number = 0;
    for (const json::element expected : json::array(kind["ids"])) {
      const std::string& text = texts.at(number++);
      CAPTURE(text);
      Ids ids, wanted;
      for (const std::int64_t id : json::array(expected)) wanted.push_back(static_cast<std::int32_t>(id));
      tokenizer->encode(text, ids);
      CHECK(ids == wanted);
    }
    CHECK(number == texts.size());
    CHECK(digest_of_scalars(*tokenizer, strings(golden["neighbours"])) == std::uint64_t{kind["scalars"]});
    CHECK(digest_of_classes(*tokenizer, strings(golden["classes"])) == std::uint64_t{kind["classes"]});
    CHECK(digest_of_random(*tokenizer, golden["random_texts"]) == std::uint64_t{kind["random"]});
    if (first == nullptr) first = std::move(tokenizer);
    ++kinds;
  }
  CHECK(kinds == 9);
}

TEST_CASE("trained vocabulary and merges are those of BpeTrainer") {
  json::parser parser;
  const json::element golden = parser.load(LLMTRAIN_GOLDEN_FOLDER "/tokenizers.json");
  BpeTrainer trainer("llama3");
  trainer.add(read_file(LLMTRAIN_GOLDEN_FOLDER "/../../LICENSE"));
  for (const std::string& text : strings(golden["texts"])) trainer.add(text);
  const std::vector<std::string> special{string(golden["special"])};
  const std::string file = trainer.train(std::ssize(strings(golden["vocab"])), special);
  json::parser own, vocab_parser;
  const std::string vocab = Model(golden).vocab();
  const json::element made = own.parse(file);
  CHECK(simdjson::to_string(made["model"]["merges"]) == simdjson::to_string(golden["merges"]));
  CHECK(simdjson::to_string(made["model"]["vocab"]) == simdjson::to_string(vocab_parser.parse(vocab).value()));

  const TestFolder folder;
  write_file(folder / "tokenizer.json", file);
  TokenizerConfig config;
  config.file = folder / "tokenizer.json";
  CHECK(make_tokenizer(config)->eod() == 0);
}

TEST_CASE("counts of pairs have 64 bits, and the order of words does not matter (B13)") {
  BpeTrainer one("gpt2"), other("gpt2");
  one.add_word("the", std::int64_t{3} << 32);
  one.add_word("xy", 5);
  other.add_word("xy", 5);
  other.add_word("the", std::int64_t{1} << 33);
  other.add_word("the", std::int64_t{1} << 32);
  CHECK(one.train(259, {}) == other.train(259, {}));
  CHECK(one.train(259, {}).find("[\"h\", \"e\"]") < one.train(259, {}).find("[\"x\", \"y\"]"));
  CHECK_FAILS(one.train(255, {}), 78, "255");
  CHECK_FAILS(BpeTrainer("cl100k"), 78, "take llama3");
}
