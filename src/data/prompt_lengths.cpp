// SPDX-License-Identifier: Apache-2.0
/// Checks and reads of prompt lengths.
#include "llmtrain/data/prompt_lengths.hpp"

#include <filesystem>
#include <span>

#include "llmtrain/base/error.hpp"

namespace llmtrain {

namespace {

/// What the prompts of the set at `prefix` are called, if there are some.
std::string existing_prompts(const std::string& prefix) {
  require(has_prompts(prefix), ExitCode::missing_input,
          "cannot open {}.idx, the lengths of prompts: write the set with preprocess --prompt-key, or leave "
          "data.mask_prompt false",
          prompts_of(prefix));
  return prompts_of(prefix);
}

}  // namespace

bool has_prompts(const std::string& prefix) { return std::filesystem::exists(prompts_of(prefix) + ".idx"); }

PromptLengths::PromptLengths(const IndexedDataset& set) : set_(set), lengths_(existing_prompts(set.prefix())) {
  bool fits = lengths_.sequences() == set.sequences();
  for (std::int64_t i = 0; fits && i < set.sequences(); ++i) fits = lengths_.length(i) == 1;
  require(fits, ExitCode::bad_input,
          "{}: is not one number for each of the {} sequences of {}; the sets do not belong together: write both again",
          lengths_.prefix(), set.sequences(), set.prefix());
}

std::int64_t PromptLengths::operator[](std::int64_t sequence) const {
  std::int32_t tokens = 0;
  lengths_.read(sequence, 0, std::span(&tokens, 1));
  require(tokens >= 0 && tokens <= set_.length(sequence), ExitCode::bad_input,
          "{}: sequence {} has a prompt of {} tokens, but {} in all; the sets do not belong together: write both again",
          lengths_.prefix(), sequence, tokens, set_.length(sequence));
  return tokens;
}

}  // namespace llmtrain
