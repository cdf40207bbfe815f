// SPDX-License-Identifier: Apache-2.0
/// Hand-written scanners that cut a text as the regular expressions of well-known tokenizers do.
#pragma once

#include <string_view>

namespace llmtrain {

/// End of the piece that begins at `at` (at < end); every text is cut without gaps, in linear time.
using Scan = const char* (*)(const char* at, const char* end);

/// A regular expression that a scanner stands for.
struct KnownPattern {
  std::string_view name;   ///< as decks call it; "" for another spelling of the one before
  std::string_view regex;  ///< as files write it
  Scan scan;
  bool rust_only = false;  ///< its '$' is the end of the text, which in Oniguruma is the end of a line
};

/// nullptr if there is none of this name; the first of a name is what its owner writes today.
const KnownPattern* find_pattern_name(std::string_view name);

/// nullptr if no scanner stands for this expression. `oniguruma`: as tokenizer.json means it, else as tiktoken does.
const KnownPattern* find_pattern_regex(std::string_view regex, bool oniguruma);

/// "gpt2, llama3, ..."
std::string_view pattern_names();

}  // namespace llmtrain
