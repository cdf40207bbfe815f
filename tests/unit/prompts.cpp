// SPDX-License-Identifier: Apache-2.0
/// Prompts: their lengths beside the data, targets in them have no weight; and special tokens in texts.
#include "llmtrain/data/prompt_lengths.hpp"

#include <doctest/doctest.h>

#include "llmtrain/data/loader.hpp"
#include "llmtrain/data/sidecar.hpp"
#include "llmtrain/data/training_data.hpp"
#include "preprocess_case.hpp"
#include "tokenizer_files.hpp"

using namespace llmtrain;

namespace {

/// Sets the lengths of prompts of the set at `prefix`.
void write_prompts(const std::string& prefix, const std::vector<std::int32_t>& lengths) {
  IndexedDatasetWriter writer(prompts_of(prefix), TokenType::int32);
  for (const std::int32_t& length : lengths) {
    writer.add_sequence(std::span(&length, 1));
    writer.end_document();
  }
  writer.finish();
  publish(writer.files());
}

TrainingData open(const std::string& prefix, SampleOrder order, bool mask_prompt, std::int64_t vocab = 1000) {
  DataConfig data;
  data.train = {{prefix, 0}};
  data.split = "100,0,0";
  data.order = order;
  data.mask_prompt = mask_prompt;
  RunConfig run;
  run.steps = 20;
  return open_training_data(data, run, 8, 4, vocab);
}

}  // namespace

TEST_CASE("a prompt stands before the text, in ids of its own, and its length beside the set") {
  const PreprocessCase test;
  const std::string lines =
      "{\"p\":\"ask \",\"text\":\"say\",\"t\":\"T\"}\n{\"p\":\"\",\"text\":\"b\",\"t\":\"\"}\n"
      "{\"p\":\"c\",\"text\":\"\",\"t\":\"\"}\n{\"t\":\"\",\"text\":\"\",\"p\":\"\"}\n";
  CHECK(test.run(lines, {"--prompt-key", "p", "--json-keys", "text,t", "--append-eod"}) == 0);
  CHECK(test.sequences("text") == Texts{"ask say$", "b$", "c$"});
  CHECK(test.sequences("t") == Texts{"ask T$", "c$"});
  const IndexedDataset text(test.folder / "out_text_document"), t(test.folder / "out_t_document");
  const PromptLengths of_text(text), of_t(t);
  CHECK(of_text[0] == 4);
  CHECK(of_text[1] == 0);
  CHECK(of_text[2] == 1);
  CHECK(of_t[0] == 4);
  CHECK(of_t[1] == 1);
  CHECK(IndexedDataset(prompts_of(text.prefix())).documents() == 4);  // the empty one too
  const auto sidecar = read_sidecar(text.prefix());
  REQUIRE(sidecar.has_value());
  CHECK(sidecar->prompt_key == "p");
  CHECK(sidecar->text_bytes == 9);
  CHECK_FALSE(std::filesystem::exists(test.folder / "out_text_document_prompt.json"));

  const PreprocessCase other;
  CHECK_FAILS(other.run("{\"text\":\"a\"}\n", {"--prompt-key", "p"}), 65, "no key 'p'");
  CHECK_FAILS(other.run("{\"text\":\"a\",\"p\":1}\n", {"--prompt-key", "p"}), 65, "'p' is not a string");
  CHECK_FAILS(other.run("{\"text\":\"a\"}\n", {"--prompt-key", "text"}), 64, "--prompt-key text");
  CHECK(other.folder.names() == Texts{"in.jsonl"});
}

TEST_CASE("targets in a prompt have no weight, wherever samples are cut") {
  const TestFolder folder;
  const std::string prefix = folder / "set";
  const std::vector<std::int64_t> lengths{30, 5, 11, 1, 2, 40};
  const std::vector<std::int32_t> prompts{19, 5, 0, 1, 1, 33};
  write_set(prefix, lengths);
  write_prompts(prefix, prompts);
  for (const SampleOrder order : {SampleOrder::megatron, SampleOrder::shuffled}) {
    const auto train = open(prefix, order, true).train, all = open(prefix, order, false).train;
    std::int64_t masked = 0, kept = 0;
    for (std::int64_t step = 1; step <= 20; ++step) {
      Loader loader(train, {4, 8, 4, 0, 1, 1000}), unmasked(all, {4, 8, 4, 0, 1, 1000});
      const MicroBatch batch = loader.load(step, 0), whole = unmasked.load(step, 0);
      CHECK(std::ranges::equal(batch.tokens, whole.tokens));
      CHECK(std::ranges::all_of(whole.weights, [](float weight) { return weight == 1; }));
      for (std::size_t row = 0; row < 4; ++row) {
        std::vector<float> expected;  // of each token
        for (const SamplePiece& piece : train->pieces(batch.samples[row] % train->samples())) {
          for (std::int64_t i = 0; i < piece.tokens; ++i) {
            expected.push_back(piece.offset + i < prompts[static_cast<std::size_t>(piece.sequence)] ? 0.0F : 1.0F);
          }
        }
        REQUIRE(expected.size() == 9);
        CHECK(std::equal(expected.begin() + 1, expected.end(), batch.weights.begin() + static_cast<long>(8 * row)));
        masked += std::count(expected.begin() + 1, expected.end(), 0.0F);
        kept += std::count(expected.begin() + 1, expected.end(), 1.0F);
      }
    }
    CHECK(masked > 0);
    CHECK(kept > 0);
  }
  CHECK(open(prefix, SampleOrder::megatron, true).train->fingerprint() !=
        open(prefix, SampleOrder::megatron, false).train->fingerprint());
}

TEST_CASE("lengths of prompts that are missing or of another set are refused") {
  const TestFolder folder;
  const std::string prefix = folder / "set";
  write_set(prefix, {30, 5, 11});
  CHECK_FAILS(open(prefix, SampleOrder::megatron, true), 66, "--prompt-key");
  write_prompts(prefix, {1, 2});
  CHECK_FAILS(open(prefix, SampleOrder::megatron, true), 65, "3 sequences");
  write_prompts(prefix, {1, 6, 2});
  const auto train = open(prefix, SampleOrder::megatron, true).train;
  Loader loader(train, {4, 8, 4, 0, 1, 1000});
  CHECK_FAILS(
      [&] {
        for (std::int64_t step = 1; step <= 20; ++step) loader.load(step, 0);
      }(),
      65, "sequence 1 has a prompt of 6 tokens, but 5");
}

TEST_CASE("special tokens in a text are their ids or text") {
  const PreprocessCase test;
  JsonTokenizer tokenizer;
  tokenizer.tokens = {"<|x|>"};
  tokenizer.added =
      R"([{"id":256,"content":"<|x|>","single_word":false,"lstrip":false,"rstrip":false,"normalized":false,"special":true}])";
  write_file(test.folder / "tokenizer.json", tokenizer.text());
  const auto ids_with = [&](const std::vector<std::string>& options) {
    write_file(test.input, "{\"text\":\"a<|x|>b\"}\n");
    std::vector<std::string> args{"--input",           test.input,    "--output-prefix",
                                  test.folder / "out", "--tokenizer", test.folder / "tokenizer.json"};
    args.insert(args.end(), options.begin(), options.end());
    const int code = tool_preprocess(MpiComm{}, args);
    CHECK(code == 0);
    const IndexedDataset set(test.folder / "out_text_document");
    std::vector<std::int32_t> ids(static_cast<std::size_t>(set.tokens()));
    set.read_tokens(0, ids);
    return ids;
  };
  const std::vector<std::int32_t> special{'a', 256, 'b'}, text{'a', '<', '|', 'x', '|', '>', 'b'};
  CHECK(ids_with({}) == special);
  CHECK(ids_with({"--special-tokens", "ids"}) == special);
  CHECK(ids_with({"--special-tokens", "text"}) == text);
  CHECK(read_sidecar(test.folder / "out_text_document")->special_tokens == "text");
  CHECK_FAILS(ids_with({"--special-tokens", "no"}), 64, "choose ids or text");
}
