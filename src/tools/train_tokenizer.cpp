// SPDX-License-Identifier: Apache-2.0
/// preprocess --train-tokenizer: JSON lines -> counts of words -> tokenizer.json.
#include <fmt/format.h>

#include <atomic>

#include "llmtrain/base/files.hpp"
#include "llmtrain/base/text.hpp"
#include "llmtrain/tokenizer/tokenizer.hpp"
#include "llmtrain/tokenizer/train.hpp"
#include "llmtrain/tools/encode_pipeline.hpp"
#include "preprocess_options.hpp"

namespace llmtrain {
namespace {

/// Stands where documents are encoded, and counts their words instead.
class WordCounter final : public Tokenizer {
 public:
  explicit WordCounter(BpeTrainer& trainer) : trainer_(trainer) {}

  std::int64_t vocab() const override { return 0; }
  void encode(std::string_view text, std::vector<std::int32_t>&) const override { trainer_.add(text); }
  std::string decode(std::span<const std::int32_t>) const override { return {}; }
  std::optional<std::int32_t> eod() const override { return std::nullopt; }
  std::string digest() const override { return {}; }
  std::string describe() const override { return "a counter of words"; }

 private:
  BpeTrainer& trainer_;
};

}  // namespace

void train_tokenizer(const PreprocessOptions& options) {
  BpeTrainer trainer(options.pattern);
  const std::vector<std::string> special = {options.eod.empty() ? std::string(usual_ends_of_document[0]) : options.eod};
  trainer.check(options.trained_vocab, special);
  const WordCounter counter(trainer);
  const EncodeSettings settings{.keys = options.keys,
                                .bad_text = bad_text_of(options.bad_text),
                                .max_line_bytes = options.max_line_bytes,
                                .tokenizer = &counter};
  KeyReader keys(settings.keys, settings.bad_text);
  const std::atomic<bool> stop = false;
  BlockReader blocks(deal_inputs(find_inputs(options.inputs), 0, 1), options.max_line_bytes, stop);
  while (const auto block = blocks.next()) encode_block(*block, keys, settings);
  const std::string file = options.prefix + "_tokenizer.json";
  atomic_write(file, trainer.train(options.trained_vocab, special));
  TokenizerConfig config;
  config.file = file;
  fmt::print("{}; from {} different words\n", make_tokenizer(config)->describe(), grouped(std::ssize(trainer.words())));
}

}  // namespace llmtrain
