// SPDX-License-Identifier: Apache-2.0
/// tokenizer.json: merges, added tokens, normalization, sequences of splits; and every mistake named.
#include <doctest/doctest.h>

#include "tokenizer_files.hpp"

using namespace llmtrain;

namespace {

const std::string split_letters =
    R"({"type":"Split","pattern":{"Regex":"[a-z]+(?=x)|[0-9]"},"behavior":"BEHAVIOR","invert":false})";
const std::string byte_level_last =
    R"({"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":false})";

std::string sequence(const std::string& first, const std::string& second) {
  return R"({"type":"Sequence","pretokenizers":[)" + first + "," + second + "]}";
}

std::string behaving(const std::string& behavior) {
  std::string text = split_letters;
  return sequence(text.replace(text.find("BEHAVIOR"), 8, behavior), byte_level_last);
}

/// Merges all neighbours of a, b, x, 0 and 1: what is one id was one piece.
JsonTokenizer joiner() {
  JsonTokenizer json;
  json.tokens = {"ab", "bx", "x0", "01", "1a"};
  json.merges = {{"a", "b"}, {"b", "x"}, {"x", "0"}, {"0", "1"}, {"1", "a"}};
  return json;
}

}  // namespace

TEST_CASE("merges go by rank, the leftmost first; a token is not a merge (B07)") {
  const TestFolder folder;
  JsonTokenizer json;
  json.tokens = {"ab", "abc", "bc", "aa", "\u0120word"};
  json.merges = {{"b", "c"}, {"a", "b"}, {"ab", "c"}, {"a", "a"}};
  const auto tokenizer = tokenizer_of(folder, json);
  CHECK(ids_of(*tokenizer, "abc") == Ids{'a', 258});
  CHECK(ids_of(*tokenizer, "aaa") == Ids{259, 'a'});
  CHECK(ids_of(*tokenizer, " word").size() == 5);  // no merge makes it
  json.more_model = R"("ignore_merges":true,)";
  const auto whole = tokenizer_of(folder, json);
  CHECK(ids_of(*whole, " word") == Ids{260});
  CHECK(ids_of(*whole, "abc") == Ids{257});
  CHECK(whole->digest() != tokenizer->digest());
  CHECK(tokenizer->vocab() == 261);
  CHECK(!tokenizer->eod().has_value());
}

TEST_CASE("merges may be pairs or strings (B06)") {
  const TestFolder folder;
  JsonTokenizer json = joiner();
  const auto pairs = tokenizer_of(folder, json);
  json.merges_as_strings = true;
  const auto strings = tokenizer_of(folder, json);
  CHECK(pairs->digest() == strings->digest());
  CHECK(ids_of(*strings, "ab") == Ids{256});
  json.merges[2] = {"x", "0 1"};
  CHECK_FAILS(tokenizer_of(folder, json), 65, "model.merges[2]: 'x 0 1' is not two tokens");
  json.merges_as_strings = false;
  CHECK_FAILS(tokenizer_of(folder, json), 65, "model.merges[2]");
  json = joiner();
  json.merges.push_back({"x", "y"});
  CHECK_FAILS(tokenizer_of(folder, json), 65, "model.merges[5]: 'x' 'y': the vocabulary has no token 'xy'");
  json = joiner();
  json.merges.push_back({"a", "b"});
  CHECK_FAILS(tokenizer_of(folder, json), 65, "merge 5 ('a' 'b') repeats an earlier one");
}

TEST_CASE("added tokens are cut out as they are written (B01, B03)") {
  const TestFolder folder;
  JsonTokenizer json;
  json.added = "[" + added_token("<\u010D>", 256) + "," + added_token("<|x|>", 257, R"("special":true,)") + "," +
               added_token("<|x|>y", 258, R"("normalized":false,)") + "]";
  const auto tokenizer = tokenizer_of(folder, json);
  CHECK(ids_of(*tokenizer, "<\u010D>") == Ids{256});
  CHECK(tokenizer->decode(Ids{256}) == "<\u010D>");
  CHECK(ids_of(*tokenizer, " <|x|> ") == Ids{' ', 257, ' '});
  CHECK(ids_of(*tokenizer, "<|x|>y<|x|>") == Ids{258, 257});  // the longest
  Ids plain;
  tokenizer->encode_plain("<|x|>", plain);
  CHECK(plain == Ids{'<', '|', 'x', '|', '>'});
  CHECK(tokenizer->decode(plain) == "<|x|>");
}

TEST_CASE("half a character has its own bytes, so the bytes of all ids are the text's (B12)") {
  const TestFolder folder;
  JsonTokenizer made;
  made.tokens = {byte_character(0xF0) + byte_character(0x9F)};  // half of an emoji
  made.merges = {{byte_character(0xF0), byte_character(0x9F)}};
  const auto tokenizer = tokenizer_of(folder, made);
  const std::string text = "a\xF0\x9F\x98\x80\xF0\x9F\x99\x82 \xC3\xA9";
  const Ids ids = ids_of(*tokenizer, text);
  CHECK(std::count(ids.begin(), ids.end(), 256) == 2);
  std::string joined;
  for (const std::int32_t& id : ids) joined += tokenizer->decode(std::span(&id, 1));
  CHECK(joined == text);
}

TEST_CASE("added tokens take white space along, or need to stand alone") {
  const TestFolder folder;
  JsonTokenizer json;
  json.added = "[" + added_token("<l>", 256, R"("lstrip":true,)") + "," + added_token("<r>", 257, R"("rstrip":true,)") +
               "," + added_token("is", 258, R"("single_word":true,)") + "]";
  const auto tokenizer = tokenizer_of(folder, json);
  CHECK(ids_of(*tokenizer, "a \u3000<l> b") == Ids{'a', 256, ' ', 'b'});
  CHECK(ids_of(*tokenizer, "a <r> \n<l>b") == Ids{'a', ' ', 257, 256, 'b'});
  CHECK(ids_of(*tokenizer, "is this is") == Ids{258, ' ', 't', 'h', 'i', 's', ' ', 258});
  CHECK(ids_of(*tokenizer, "\u00E9is").size() == 4);
}

TEST_CASE("NFC, and added tokens before and behind it") {
  const TestFolder folder;
  JsonTokenizer json;
  json.normalizer = R"({"type":"NFC"})";
  json.added = "[" + added_token("e\u0301!", 256, R"("normalized":true,)") + "," +
               added_token("e\u0301?", 257, R"("normalized":false,)") + "]";
  const auto tokenizer = tokenizer_of(folder, json);
  CHECK(tokenizer->decode(ids_of(*tokenizer, "e\u0301 A\u030A \u1100\u1161\u11A8 x")) == "\u00E9 \u00C5 \uAC01 x");
  CHECK(ids_of(*tokenizer, "\u00E9!") == Ids{256});
  CHECK(ids_of(*tokenizer, "e\u0301!") == Ids{256});
  CHECK(ids_of(*tokenizer, "e\u0301?") == Ids{257});
  CHECK(ids_of(*tokenizer, "\u00E9?") == Ids{0xC3, 0xA9, '?'});
  CHECK(tokenizer->decode(ids_of(*tokenizer,
                                 "a\xFF"
                                 "e\u0301")) == "a\xFF\u00E9");
  json.normalizer = R"({"type":"Sequence","normalizers":[{"type":"NFC"},{"type":"Lowercase"}]})";
  CHECK_FAILS(tokenizer_of(folder, json), 65, "normalizer.normalizers[1].type: 'Lowercase' is not supported");
}

TEST_CASE("splits by expression and their behaviors") {
  const TestFolder folder;
  JsonTokenizer json = joiner();
  const auto ids = [&](const std::string& pre_tokenizer, const std::string& text) {
    json.pre_tokenizer = pre_tokenizer;
    return ids_of(*tokenizer_of(folder, json), text);
  };
  // "abx01a" is matched as ab, 0, 1
  CHECK(ids(behaving("Isolated"), "abx01a") == Ids{256, 'x', '0', '1', 'a'});
  CHECK(ids(behaving("Removed"), "abx01a") == Ids{'x', 'a'});
  CHECK(ids(behaving("MergedWithPrevious"), "abx01a") == Ids{256, 258, '1', 'a'});
  CHECK(ids(behaving("MergedWithNext"), "abx01a") == Ids{256, 'x', '0', 260});
  CHECK(ids(behaving("Contiguous"), "abx01a") == Ids{256, 'x', 259, 'a'});
  const std::string digits = R"({"type":"Digits","individual_digits":INDIVIDUAL})";
  CHECK(ids(sequence(std::string(digits).replace(digits.find("INDIVIDUAL"), 10, "true"), byte_level_last), "x01a") ==
        Ids{'x', '0', '1', 'a'});
  CHECK(ids(sequence(std::string(digits).replace(digits.find("INDIVIDUAL"), 10, "false"), byte_level_last), "x01a") ==
        Ids{'x', 259, 'a'});
  CHECK(ids(sequence(R"({"type":"Split","pattern":{"String":"x"},"behavior":"Isolated","invert":false})",
                     byte_level_last),
            "bx01") == Ids{'b', 'x', 259});
  CHECK(ids(byte_level_last, "abx01a") == Ids{256, 258, 260});
}

TEST_CASE("ByteLevel's fields are honoured (B04)") {
  const TestFolder folder;
  JsonTokenizer json;
  json.tokens = {"b\u0120"};
  json.merges = {{"b", "\u0120"}};
  json.pre_tokenizer = byte_level_last;
  CHECK(ids_of(*tokenizer_of(folder, json), "ab c") == Ids{'a', 256, 'c'});
  json.pre_tokenizer = R"({"type":"ByteLevel","add_prefix_space":true,"trim_offsets":true,"use_regex":true})";
  CHECK(ids_of(*tokenizer_of(folder, json), "ab c") == Ids{' ', 'a', 'b', ' ', 'c'});
  CHECK(ids_of(*tokenizer_of(folder, json), " ab") == Ids{' ', 'a', 'b'});
  json.pre_tokenizer = R"({"type":"ByteLevel","add_prefix_space":false,"use_regexp":false})";
  CHECK_FAILS(tokenizer_of(folder, json), 65, "pre_tokenizer.use_regexp: this field is not known");
}

TEST_CASE("what is not known is refused by name") {
  const TestFolder folder;
  const auto refused = [&](const std::string& part, auto change) {
    JsonTokenizer json;
    change(json);
    CHECK_FAILS(tokenizer_of(folder, json), 65, part);
  };
  refused("pre_tokenizer.type: 'Metaspace' is not supported",
          [](auto& j) { j.pre_tokenizer = R"({"type":"Metaspace"})"; });
  refused("pre_tokenizer: there is none", [](auto& j) { j.pre_tokenizer = "null"; });
  refused("model.vocabulary: this field is not known", [](auto& j) { j.more_model = R"("vocabulary":{},)"; });
  refused("model.dropout: random", [](auto& j) { j.more_model = R"("dropout":0.1,)"; });
  refused("model.end_of_word_suffix: is not supported",
          [](auto& j) { j.more_model = R"("end_of_word_suffix":"</w>",)"; });
  refused("surprise: this field is not known", [](auto& j) { j.more = R"("surprise":1,)"; });
  refused("normalizer: is given twice", [](auto& j) { j.more = R"("normalizer":null,)"; });
  refused("pre_tokenizer.pretokenizers[0].pattern.Regex: the expression cannot be used", [](auto& j) {
    j.pre_tokenizer =
        sequence(R"({"type":"Split","pattern":{"Regex":"(a"},"behavior":"Isolated","invert":false})", byte_level_last);
  });
  refused("(?m) means something else", [](auto& j) {
    j.pre_tokenizer = sequence(R"({"type":"Split","pattern":{"Regex":"(?im)."},"behavior":"Isolated","invert":false})",
                               byte_level_last);
  });
  refused("'Alone' is no behavior", [](auto& j) { j.pre_tokenizer = behaving("Alone"); });
  refused("ByteLevel stands behind", [](auto& j) { j.pre_tokenizer = sequence(byte_level_last, byte_level_last); });
}

TEST_CASE("ids that contradict each other are refused, holes are counted and never produced (F42)") {
  const TestFolder folder;
  const auto file = [&](std::string text, const std::string& from, const std::string& to) {
    REQUIRE(text.find(from) != std::string::npos);
    text.replace(text.find(from), from.size(), to);
    write_file(folder / "tokenizer.json", text);
    return tokenizer_at(folder / "tokenizer.json");
  };
  JsonTokenizer json;
  json.tokens = {"ab", "abc"};
  const std::string text = json.text();
  CHECK_FAILS(file(text, "\"ab\": 256", "\"ab\": 257"), 65, "id 257");
  CHECK_FAILS(file(text, "\"ab\": 256", "\"ab\": -1"), 65, "'ab'");
  CHECK_FAILS(file(text, "\"ab\": 256", "\"ab\": 1e9"), 65, "'ab'");
  CHECK_FAILS(file(text, "\"ab\": 256", "\"ab\": 99999999999"), 65, "'ab'");
  CHECK_FAILS(file(text, "\"abc\": 257", "\"ab\": 257"), 65, "'ab'");
  CHECK_FAILS(file(text, "\"a\": 97", "\"aaaa\": 97"), 65, "no token for the byte 0x61 (written 'a')");
  const auto holes = file(text, "\"abc\": 257", "\"abc\": 300");
  CHECK(holes->vocab() == 301);
  CHECK(holes->describe().find("(43 of them holes") != std::string::npos);
  CHECK_FAILS(holes->decode(Ids{280}), 65, "280");
  CHECK_FAILS(holes->decode(Ids{301}), 65, "301");
  CHECK_FAILS(holes->decode(Ids{-1}), 65, "-1");
  json.added = "[" + added_token("<x>", 300) + "]";
  CHECK_FAILS(tokenizer_of(folder, json), 65, "added_tokens[0]: '<x>' has id 300, but the next free id is 258");
  json.added = "[" + added_token("ab", 257) + "]";
  CHECK_FAILS(tokenizer_of(folder, json), 65, "'ab' has id 257 here and id 256 in model.vocab");
  json.added = "[" + added_token("<x>", 258) + "," + added_token("<x>", 259) + "]";
  CHECK_FAILS(tokenizer_of(folder, json), 65, "added_tokens[1]: '<x>' is given twice");
}

TEST_CASE("files that are no tokenizer (F42)") {
  const TestFolder folder;
  const auto refused = [&](const std::string& text, const std::string& part) {
    write_file(folder / "f", text);
    CHECK_FAILS(tokenizer_at(folder / "f"), 65, part);
  };
  refused("", "neither a tokenizer.json nor a rank file");
  refused("\x0a\x05<unk>", "SentencePiece models are not supported");
  refused("{", "is no JSON that can be read");
  refused("{\"version\":\"1.0\"}", "is missing");
  refused("{\"version\":" + std::string(5000, '[') + std::string(5000, ']') + "}", "is no JSON that can be read");
  refused(R"({"version":"\ud800"})", "is no JSON that can be read");
  refused("{\"a\":\"\xFF\"}", "is no JSON that can be read");
  std::filesystem::resize_file(folder / "f", (std::int64_t{256} << 20) + 1);
  CHECK_FAILS(tokenizer_at(folder / "f"), 65, "too many for a tokenizer file");
  CHECK_FAILS(tokenizer_at(folder / ""), 66, "no tokenizer in the folder");
}
