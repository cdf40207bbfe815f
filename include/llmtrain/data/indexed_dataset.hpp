// SPDX-License-Identifier: Apache-2.0
/// Megatron's .bin/.idx pair: token sequences back to back, and an index of their lengths, places and documents.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <string>

#include "llmtrain/data/input_file.hpp"

namespace llmtrain {

/// Token types of a .bin file; the values are the codes in the .idx file.
enum class TokenType : std::uint8_t { int32 = 4, uint16 = 8 };

/// Bytes of one token.
constexpr std::int64_t size_of(TokenType type) { return type == TokenType::uint16 ? 2 : 4; }

/// First bytes of an .idx file, and its only version.
inline constexpr char index_magic[9] = {'M', 'M', 'I', 'D', 'I', 'D', 'X', '\0', '\0'};
inline constexpr std::uint64_t index_version = 1;
inline constexpr std::int64_t index_header_bytes = 34;

/// A checked view of an .idx file. Its arrays start at byte 34, so they are not aligned: values are copied out.
struct IndexView {
  TokenType type = TokenType::uint16;
  std::int64_t sequences = 0;
  std::int64_t document_bounds = 0;      ///< entries of the document index: documents + 1
  std::int64_t tokens = 0;               ///< of all sequences
  const std::byte* lengths = nullptr;    ///< int32 [sequences], tokens
  const std::byte* offsets = nullptr;    ///< int64 [sequences], bytes into the .bin file
  const std::byte* documents = nullptr;  ///< int64 [document_bounds], first sequence of each document, then `sequences`
};

/// Reads an .idx file given as bytes and proves it sound against a .bin file of `bin_bytes` bytes: afterwards every length
/// and offset lies inside the .bin file. Throws Error(bad_input) with `name`, the byte offset and the value at fault.
IndexView parse_index(std::span<const std::byte> bytes, std::int64_t bin_bytes, const std::string& name);

/// Place of a token: a position in some order of the sequences, and token of that sequence.
struct StreamPlace {
  std::int64_t position = 0;
  std::int64_t offset = 0;
  bool operator==(const StreamPlace&) const = default;
};

/// An open dataset. The index is mapped (one copy a node); tokens are read by position, not mapped, so that a .bin file
/// that shrinks or fails while in use is an Error and not a SIGBUS. Reads are thread-safe.
class IndexedDataset {
 public:
  /// Opens PREFIX.idx and PREFIX.bin. Throws Error(missing_input or bad_input).
  explicit IndexedDataset(const std::string& prefix);
  /// The same of a pair whose files are named otherwise; `prefix` is for messages.
  IndexedDataset(const std::string& prefix, const std::string& index, const std::string& tokens);

  const std::string& prefix() const { return prefix_; }
  TokenType type() const { return view_.type; }
  std::int64_t sequences() const { return view_.sequences; }
  std::int64_t documents() const { return view_.document_bounds - 1; }
  std::int64_t tokens() const { return view_.tokens; }

  /// Token of the .bin file at which a sequence begins; of sequences() the end.
  std::int64_t first_token(std::int64_t sequence) const {
    return sequence == view_.sequences ? view_.tokens
                                       : entry<std::int64_t>(view_.offsets, sequence) / size_of(view_.type);
  }
  /// The sequence that holds token `token` of the .bin file, and where in it.
  StreamPlace place_of(std::int64_t token) const;
  /// Tokens of a sequence.
  std::int64_t length(std::int64_t sequence) const { return entry<std::int32_t>(view_.lengths, sequence); }
  /// The first sequence of a document; of documents() the end.
  std::int64_t first_sequence(std::int64_t document) const { return entry<std::int64_t>(view_.documents, document); }
  /// The document that holds a sequence.
  std::int64_t document_of(std::int64_t sequence) const;
  /// Copies tokens [offset, offset + out.size()) of a sequence, widened, not checked against a vocabulary. Throws
  /// Error(bad_input or io_error) if the file no longer holds them.
  void read(std::int64_t sequence, std::int64_t offset, std::span<std::int32_t> out) const;
  /// The same for tokens [token, token + out.size()) of the .bin file.
  void read_tokens(std::int64_t token, std::span<std::int32_t> out) const;
  /// Digest of the index and of samples of the tokens: it changes with documents added, removed or reordered. Reads the
  /// whole index.
  std::string fingerprint() const;
  /// Throws Error(bad_input) if the index file's size has changed since it was opened.
  void require_unchanged() const { index_.file().require_unchanged(); }

 private:
  template <class T>
  static T entry(const std::byte* array, std::int64_t index) {
    T value;
    std::memcpy(&value, array + index * static_cast<std::int64_t>(sizeof(T)), sizeof(T));
    return value;
  }

  std::string prefix_;
  MappedFile index_;
  InputFile tokens_;
  IndexView view_;
};

}  // namespace llmtrain
