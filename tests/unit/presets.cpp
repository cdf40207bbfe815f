// SPDX-License-Identifier: Apache-2.0
/// The presets count to the numbers of parameters of the models that they are named after.
#include "llmtrain/config/presets.hpp"

#include <doctest/doctest.h>

#include "llmtrain/config/read.hpp"
#include "llmtrain/metrics/flops.hpp"
#include "llmtrain/model/param_table.hpp"

using namespace llmtrain;

namespace {

struct Published {
  std::string_view preset;
  std::int64_t parameters;
};

/// Elements of all weights in the published checkpoints, a tied matrix once: the arithmetic of the models' config.json
/// files, written beside each: embedding (and head), blocks, final norm. Model cards and papers print them rounded: 124M
/// and 1.5B (GPT-2), 13B (Llama 2), 34B (Code Llama), 8B and 70B (Llama 3), 405B (Llama 3.1), 1.23B and 3.21B (Llama 3.2),
/// 1.54B, 3.09B and 7.61B (Qwen2.5), 8.2B (Qwen3).
constexpr Published published[] = {
    {"gpt2-124m", 124'439'808},         // 50257 x 768 + 1024 x 768 + 12 x 7,087,872 + 1,536
    {"gpt2-1.5b", 1'557'611'200},       // 50257 x 1600 + 1024 x 1600 + 48 x 30,740,800 + 3,200
    {"llama2-13b", 13'015'864'320},     // 2 x 32000 x 5120 + 40 x 317,204,480 + 5,120
    {"codellama-34b", 33'743'970'304},  // 2 x 32000 x 8192 + 48 x 692,076,544 + 8,192
    {"llama3-8b", 8'030'261'248},       // 2 x 128256 x 4096 + 32 x 218,112,000 + 4,096
    {"llama3-70b", 70'553'706'496},     // 2 x 128256 x 8192 + 80 x 855,654,400 + 8,192
    {"llama3-405b", 405'853'388'800},   // 2 x 128256 x 16384 + 126 x 3,187,703,808 + 16,384
    {"llama3.2-1b", 1'235'814'400},     // 128256 x 2048 + 16 x 60,821,504 + 2,048
    {"llama3.2-3b", 3'212'749'824},     // 128256 x 3072 + 28 x 100,669,440 + 3,072
    {"qwen2.5-1.5b", 1'543'714'304},    // 151936 x 1536 + 28 x 46,797,824 + 1,536
    {"qwen2.5-3b", 3'085'938'688},      // 151936 x 2048 + 36 x 77,076,992 + 2,048
    {"qwen2.5-7b", 7'615'616'512},      // 2 x 152064 x 3584 + 28 x 233,057,792 + 3,584
    {"qwen3-8b", 8'190'735'360},        // 2 x 151936 x 4096 + 36 x 192,946,432 + 4,096
};

}  // namespace

TEST_CASE("presets have the published numbers of parameters, by formula and by the table of parameters") {
  CHECK(presets().size() == std::size(published));
  for (const auto& [name, parameters] : published) {
    CAPTURE(name);
    const ModelConfig model =
        parse_deck("model: {vocab_multiple: 128, preset: " + std::string(name) + "}", "deck.yaml").model;
    CHECK(count_parameters(model).total == parameters);
    CHECK(make_param_table(model, 1).parameters() == parameters);
  }
}
