// SPDX-License-Identifier: Apache-2.0
/// Writes a .bin/.idx pair as a stream: memory does not grow with the number of documents.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "llmtrain/data/indexed_dataset.hpp"
#include "llmtrain/data/output_file.hpp"

namespace llmtrain {

/// uint16 below 65,500 ids, as Megatron chooses, else int32.
constexpr TokenType token_type_for(std::int64_t vocab) { return vocab < 65500 ? TokenType::uint16 : TokenType::int32; }

/// Call add_sequence for each sequence and end_document after each document (which may have none), then finish, then
/// publish(files()). Before that, nothing stands under the final names; destroyed early, nothing is left.
class IndexedDatasetWriter {
 public:
  /// Throws Error(cannot_create).
  IndexedDatasetWriter(const std::string& prefix, std::int64_t vocab);
  /// For any id that the type holds.
  IndexedDatasetWriter(const std::string& prefix, TokenType type);

  /// Throws Error(bad_input) for an id outside [0, vocab) or a sequence of 2^31 tokens or more, Error(io_error) if a
  /// write fails.
  void add_sequence(std::span<const std::int32_t> tokens);
  void end_document();
  /// Appends all sequences and documents of another set, its ids as wide as they are here. Throws what add_sequence throws,
  /// and Error(bad_input) if the set changes while it is read.
  void append(const IndexedDataset& other);

  /// Completes the contents of both files. Throws Error(io_error).
  void finish(Lasts lasts = Lasts::yes);
  /// The .bin and the .idx file, in the order in which they are to be published.
  std::array<OutputFile*, 2> files() { return {&tokens_, &index_}; }
  TokenType type() const { return type_; }

  std::int64_t sequences() const { return sequences_; }
  std::int64_t documents() const { return documents_; }
  std::int64_t tokens() const { return tokens_written_; }
  std::int32_t max_token() const { return max_token_; }  ///< -1 if there is no token

 private:
  IndexedDatasetWriter(const std::string& prefix, TokenType type, std::int64_t vocab);
  void write_tokens(std::span<const std::int32_t> tokens);
  void append_offsets();
  void append_documents();

  TokenType type_;
  std::int64_t vocab_;
  OutputFile tokens_;
  OutputFile index_;           // lengths go to their final place at once
  OutputFile document_index_;  // the document index, copied behind the offsets at the end; never published
  std::vector<std::uint16_t> narrow_;
  std::int64_t sequences_ = 0;
  std::int64_t documents_ = 0;
  std::int64_t tokens_written_ = 0;
  std::int32_t max_token_ = -1;
};

}  // namespace llmtrain
