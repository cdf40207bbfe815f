// SPDX-License-Identifier: Apache-2.0
/// What the readers of tokenizer files share.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>

#include "bpe.hpp"
#include "files.hpp"
#include "json_view.hpp"

namespace llmtrain {

/// Tokens of a vocabulary that hold characters that stand for no byte: no text has them, but added tokens may name them.
using OddTokens = std::unordered_map<std::string, std::int32_t>;

/// Adds an object {token: id}, its tokens written in characters that stand for bytes.
OddTokens add_vocabulary(const JsonView& vocab, Vocabulary& vocabulary);

/// Finds the tokens of a merge by their characters. `place`: of the merge, for messages.
Merge make_merge(const Vocabulary& vocabulary, std::string_view left, std::string_view right, std::size_t rank,
                 const std::string& place);

/// Adds the special tokens that a deck names. Throws Error(configuration) where they contradict the file.
void add_special(BpeParts& parts, const FileOptions& options);

/// The split by a pattern that a deck names. Throws Error(configuration).
PreTokenizer named_pattern(const std::string& pattern);

}  // namespace llmtrain
