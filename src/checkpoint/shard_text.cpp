// SPDX-License-Identifier: Apache-2.0
/// Headers of stored pieces as lines of words, for the exchange between ranks.
#include <charconv>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "llmtrain/base/error.hpp"
#include "shard.hpp"

namespace llmtrain {

namespace {

/// Takes the next word of a text, which our own encode wrote.
std::string_view next_word(std::string_view& text) {
  const auto end = text.find_first_of(" \n");
  LLMTRAIN_CHECK(end != std::string_view::npos);
  const std::string_view word = text.substr(0, end);
  text.remove_prefix(end + 1);
  return word;
}

std::int64_t next_integer(std::string_view& text) {
  const std::string_view word = next_word(text);
  std::int64_t value = 0;
  const auto result = std::from_chars(word.data(), word.data() + word.size(), value);
  LLMTRAIN_CHECK(result.ec == std::errc());
  return value;
}

std::vector<std::int64_t> next_shape(std::string_view& text, std::int64_t extents) {
  std::vector<std::int64_t> shape(static_cast<std::size_t>(extents));
  for (std::int64_t& extent : shape) extent = next_integer(text);
  return shape;
}

}  // namespace

std::string encode(std::span<const StoredPiece> pieces) {
  std::string text;
  for (const StoredPiece& stored : pieces) {
    const Piece& piece = stored.piece;
    text += fmt::format("{} {} {} {} {} {} {} {} {} {} {} {}\n", piece.dataset, static_cast<int>(piece.dtype),
                        piece.global_shape.size(), fmt::join(piece.global_shape, " "),
                        fmt::join(piece.slice_start, " "), fmt::join(piece.slice_shape, " "), piece.flat_begin,
                        piece.flat_end, stored.digest, stored.shard, stored.dataset, stored.offset);
  }
  return text;
}

std::vector<StoredPiece> decode(std::string_view text) {
  std::vector<StoredPiece> pieces;
  while (!text.empty()) {
    StoredPiece stored;
    Piece& piece = stored.piece;
    piece.dataset = next_word(text);
    piece.dtype = static_cast<DType>(next_integer(text));
    const std::int64_t extents = next_integer(text);
    piece.global_shape = next_shape(text, extents);
    piece.slice_start = next_shape(text, extents);
    piece.slice_shape = next_shape(text, extents);
    piece.flat_begin = next_integer(text);
    piece.flat_end = next_integer(text);
    stored.digest = next_word(text);
    stored.shard = next_word(text);
    stored.dataset = next_word(text);
    stored.offset = next_integer(text);
    pieces.push_back(std::move(stored));
  }
  return pieces;
}

}  // namespace llmtrain
