// SPDX-License-Identifier: Apache-2.0
/// PREFIX.json beside a .bin/.idx pair: how llmtrain preprocess made it. Sets of other programs have none.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace llmtrain {

/// Settings and counts of one preprocessed set.
struct Sidecar {
  std::vector<std::string> inputs;
  std::string key;                     ///< of the text in each line
  std::string prompt_key;              ///< of what stands before it; empty: nothing
  std::string special_tokens = "ids";  ///< what became of those written in the text
  std::string tokenizer;               ///< its digest
  std::int64_t vocab = 0;
  std::int64_t eod = -1;           ///< appended to each document that is not empty; -1: none
  std::string bad_text = "error";  ///< what became of lines that are not Unicode
  std::int64_t replaced_lines = 0;
  std::int64_t skipped_lines = 0;
  std::int64_t documents = 0;
  std::int64_t empty_documents = 0;  ///< an entry in the document index, no sequence
  std::int64_t repeated_keys = 0;    ///< lines in which the key stood more than once; the last one was taken
  std::int64_t sequences = 0;
  std::int64_t tokens = 0;
  std::int64_t text_bytes = 0;
  std::int64_t max_token = -1;  ///< largest id; -1 if there is no token
};

/// The JSON text, one member a line.
std::string to_json(const Sidecar& sidecar);

/// Reads PREFIX.json; nothing if it does not exist or is not a file of this kind (then only data made elsewhere).
std::optional<Sidecar> read_sidecar(const std::string& prefix);

}  // namespace llmtrain
