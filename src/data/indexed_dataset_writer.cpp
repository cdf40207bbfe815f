// SPDX-License-Identifier: Apache-2.0
/// Streaming writer of Megatron's indexed datasets.
#include "llmtrain/data/indexed_dataset_writer.hpp"

#include <algorithm>
#include <limits>

#include "llmtrain/base/error.hpp"

namespace llmtrain {
namespace {

constexpr std::int64_t copied_at_once = 1 << 16;  // entries

}  // namespace

IndexedDatasetWriter::IndexedDatasetWriter(const std::string& prefix, std::int64_t vocab)
    : IndexedDatasetWriter(prefix, token_type_for(vocab), vocab) {}

IndexedDatasetWriter::IndexedDatasetWriter(const std::string& prefix, TokenType type)
    : IndexedDatasetWriter(prefix, type, std::int64_t{1} << (type == TokenType::uint16 ? 16 : 31)) {}

IndexedDatasetWriter::IndexedDatasetWriter(const std::string& prefix, TokenType type, std::int64_t vocab)
    : type_(type),
      vocab_(vocab),
      tokens_(prefix + ".bin"),
      index_(prefix + ".idx"),
      document_index_(prefix + ".idx.documents") {
  const std::array<std::byte, index_header_bytes> header{};
  index_.append(header);
  document_index_.append(bytes_of(std::int64_t{0}));
}

void IndexedDatasetWriter::add_sequence(std::span<const std::int32_t> tokens) {
  require(tokens.size() <= static_cast<std::size_t>(std::numeric_limits<std::int32_t>::max()), ExitCode::bad_input,
          "{}: sequence {} has {} tokens; an index holds at most 2147483647 a sequence: cut the document",
          tokens_.path(), sequences_, tokens.size());
  write_tokens(tokens);
  index_.append(bytes_of(static_cast<std::int32_t>(tokens.size())));
  ++sequences_;
}

void IndexedDatasetWriter::write_tokens(std::span<const std::int32_t> tokens) {
  std::int32_t lowest = 0;
  std::int32_t highest = -1;
  for (const std::int32_t token : tokens) {
    lowest = std::min(lowest, token);
    highest = std::max(highest, token);
  }
  require(lowest >= 0 && highest < vocab_, ExitCode::bad_input,
          "{}: sequence {} holds token id {}, outside the vocabulary of {}", tokens_.path(), sequences_,
          lowest < 0 ? lowest : highest, vocab_);
  if (type_ == TokenType::uint16) {
    narrow_.assign(tokens.begin(), tokens.end());
    tokens_.append(std::as_bytes(std::span(narrow_)));
  } else {
    tokens_.append(std::as_bytes(tokens));
  }
  tokens_written_ += static_cast<std::int64_t>(tokens.size());
  max_token_ = std::max(max_token_, highest);
}

void IndexedDatasetWriter::append(const IndexedDataset& other) {
  std::vector<std::int32_t> tokens;
  for (std::int64_t begin = 0; begin < other.tokens(); begin += copied_at_once) {
    tokens.resize(static_cast<std::size_t>(std::min(copied_at_once, other.tokens() - begin)));
    other.read_tokens(begin, tokens);
    write_tokens(tokens);
  }
  other.require_unchanged();
  for (std::int64_t i = 0; i < other.sequences(); ++i)
    index_.append(bytes_of(static_cast<std::int32_t>(other.length(i))));
  for (std::int64_t i = 1; i <= other.documents(); ++i) {
    document_index_.append(bytes_of(sequences_ + other.first_sequence(i)));
  }
  sequences_ += other.sequences();
  documents_ += other.documents();
}

void IndexedDatasetWriter::end_document() {
  document_index_.append(bytes_of(sequences_));
  ++documents_;
}

void IndexedDatasetWriter::append_offsets() {
  std::vector<std::int32_t> lengths;
  std::vector<std::int64_t> offsets;
  std::int64_t offset = 0;
  for (std::int64_t begin = 0; begin < sequences_; begin += copied_at_once) {
    lengths.resize(static_cast<std::size_t>(std::min(copied_at_once, sequences_ - begin)));
    index_.read_at(index_header_bytes + 4 * begin, std::as_writable_bytes(std::span(lengths)));
    offsets.clear();
    for (const std::int32_t length : lengths) {
      offsets.push_back(offset);
      offset += length * size_of(type_);
    }
    index_.append(std::as_bytes(std::span(offsets)));
  }
}

void IndexedDatasetWriter::append_documents() {
  std::vector<std::int64_t> bounds;
  for (std::int64_t begin = 0; begin <= documents_; begin += copied_at_once) {
    bounds.resize(static_cast<std::size_t>(std::min(copied_at_once, documents_ + 1 - begin)));
    document_index_.read_at(8 * begin, std::as_writable_bytes(std::span(bounds)));
    index_.append(std::as_bytes(std::span(bounds)));
  }
}

void IndexedDatasetWriter::finish(Lasts lasts) {
  append_offsets();
  append_documents();
  std::array<std::byte, index_header_bytes> header{};
  const auto put = [&header](std::size_t offset, const auto& value) {
    const auto bytes = bytes_of(value);
    std::copy(bytes.begin(), bytes.end(), header.begin() + static_cast<std::ptrdiff_t>(offset));
  };
  put(0, index_magic);
  put(9, index_version);
  put(17, static_cast<std::uint8_t>(type_));
  put(18, sequences_);
  put(26, documents_ + 1);
  index_.write_at(0, header);
  tokens_.finish(lasts);
  index_.finish(lasts);
}

}  // namespace llmtrain
