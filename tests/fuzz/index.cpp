// SPDX-License-Identifier: Apache-2.0
/// Fuzz target of the .idx reader. An input is the size of the .bin file, 8 bytes, and then the .idx file.
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <span>
#include <string>

#include "llmtrain/base/error.hpp"
#include "llmtrain/data/indexed_dataset.hpp"
#include "target.hpp"

namespace llmtrain::fuzz {

namespace {

template <class T>
T entry(const std::byte* array, std::int64_t index) {
  T value;
  std::memcpy(&value, array + index * static_cast<std::int64_t>(sizeof(T)), sizeof(T));
  return value;
}

/// What the rest of the program relies on.
void check_view(const IndexView& view, std::int64_t bin_bytes) {
  std::int64_t tokens = 0;
  for (std::int64_t i = 0; i < view.sequences; ++i) {
    const auto length = entry<std::int32_t>(view.lengths, i);
    expect(length >= 0 && entry<std::int64_t>(view.offsets, i) == tokens * size_of(view.type), "a sequence's place");
    tokens += length;
  }
  expect(tokens == view.tokens && tokens * size_of(view.type) == bin_bytes, "the number of tokens");
  expect(view.document_bounds >= 1 && entry<std::int64_t>(view.documents, 0) == 0, "the first document");
  for (std::int64_t i = 1; i < view.document_bounds; ++i) {
    expect(entry<std::int64_t>(view.documents, i - 1) <= entry<std::int64_t>(view.documents, i), "falling documents");
  }
  expect(entry<std::int64_t>(view.documents, view.document_bounds - 1) == view.sequences, "the last document");
}

template <class T>
void append(std::string& bytes, T value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
}

std::string seed(TokenType type, std::initializer_list<std::int32_t> lengths,
                 std::initializer_list<std::int64_t> documents) {
  std::string offsets;
  std::int64_t bin_bytes = 0;
  for (const std::int32_t length : lengths) {
    append(offsets, bin_bytes);
    bin_bytes += length * size_of(type);
  }
  std::string bytes;
  append(bytes, bin_bytes);
  bytes.append(index_magic, sizeof index_magic);
  append(bytes, index_version);
  append(bytes, type);
  append(bytes, static_cast<std::uint64_t>(lengths.size()));
  append(bytes, static_cast<std::uint64_t>(documents.size()));
  for (const std::int32_t length : lengths) append(bytes, length);
  bytes += offsets;
  for (const std::int64_t document : documents) append(bytes, document);
  return bytes;
}

}  // namespace

void try_bytes(std::string_view bytes) {
  std::int64_t bin_bytes = 0;
  std::memcpy(&bin_bytes, bytes.data(), std::min(bytes.size(), sizeof bin_bytes));
  bin_bytes &= INT64_MAX;  // a file's size
  bytes.remove_prefix(std::min(bytes.size(), sizeof bin_bytes));
  try {
    check_view(parse_index(std::as_bytes(std::span(bytes)), bin_bytes, "set.idx"), bin_bytes);
  } catch (const Error& error) {
    expect(error.code() == ExitCode::bad_input && std::string(error.what()).starts_with("set.idx: "), error.what());
  }
}

std::vector<std::string> seeds() {
  return {
      seed(TokenType::uint16, {}, {0}),
      seed(TokenType::uint16, {2, 0, 3}, {0, 2, 2, 3}),
      seed(TokenType::int32, {7, 1}, {0, 1, 2}),
      seed(TokenType::int32, {INT32_MAX, INT32_MAX, 5}, {0, 3}),
  };
}

}  // namespace llmtrain::fuzz
