// SPDX-License-Identifier: Apache-2.0
/// How many tokens of each sequence are its prompt, which data.mask_prompt leaves out of the loss.
#pragma once

#include <cstdint>
#include <string>

#include "llmtrain/data/indexed_dataset.hpp"

namespace llmtrain {

/// What the set of prompt lengths of the set at `prefix` is called.
inline std::string prompts_of(const std::string& prefix) { return prefix + "_prompt"; }

bool has_prompts(const std::string& prefix);

/// PREFIX_prompt.bin/.idx: a .bin/.idx pair like any other, in which sequence i is one number, the tokens at the start of
/// sequence i of PREFIX that are its prompt. Thread-safe.
class PromptLengths {
 public:
  /// Throws Error(missing_input), and Error(bad_input) if the sequences are not those of `set`.
  explicit PromptLengths(const IndexedDataset& set);

  /// Throws Error(bad_input) if that are more tokens than the sequence has.
  std::int64_t operator[](std::int64_t sequence) const;
  std::string fingerprint() const { return lengths_.fingerprint(); }

 private:
  const IndexedDataset& set_;
  IndexedDataset lengths_;
};

}  // namespace llmtrain
