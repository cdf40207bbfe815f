// SPDX-License-Identifier: Apache-2.0
/// The text of manifest.json, in an order and a format that never vary.
#include <algorithm>
#include <numeric>
#include <span>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "files.hpp"
#include "llmtrain/checkpoint/manifest.hpp"

namespace llmtrain {

namespace {

std::string json_text(std::string_view text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      result += '\\';
      result += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      result += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    } else {
      result += c;
    }
  }
  result += '"';
  return result;
}

/// `items` as "a, b, c", each by `print`.
template <class Items, class Print>
std::string listed(const Items& items, Print print) {
  std::vector<std::string> texts;
  for (const auto& item : items) texts.push_back(print(item));
  return fmt::format("{}", fmt::join(texts, ", "));
}

/// The member "pieces" of a tensor; nothing where there are none.
std::string pieces_text(std::span<const StoredPiece> pieces) {
  if (pieces.empty()) return "";
  const auto text = listed(pieces, [](const StoredPiece& stored) {
    const Piece& piece = stored.piece;
    return fmt::format(
        "{{\"file\": {}, \"offset\": {}, \"start\": [{}], \"shape\": [{}], \"range\": [{}, {}], \"xxh3_128\": {}}}",
        json_text(stored.shard), stored.offset, fmt::join(piece.slice_start, ", "), fmt::join(piece.slice_shape, ", "),
        piece.flat_begin, piece.flat_end, json_text(stored.digest));
  });
  return fmt::format(", \"pieces\": [{}]", text);
}

constexpr std::string_view name_characters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";

}  // namespace

std::int64_t Manifest::bytes() const {
  return std::accumulate(files.begin(), files.end(), std::int64_t{0},
                         [](std::int64_t sum, const ManifestFile& file) { return sum + file.size; });
}

bool valid_file_name(std::string_view name) {
  return !name.empty() && name.size() <= 255 && name.front() != '.' &&
         name.find_first_not_of(name_characters) == std::string_view::npos;
}

bool valid_dataset_name(std::string_view name) {
  if (!name.starts_with('/') || name.size() > 1023) return false;
  while (!name.empty()) {
    const auto end = std::min(name.find('/', 1), name.size());
    if (!valid_file_name(name.substr(1, end - 1))) return false;
    name.remove_prefix(end);
  }
  return true;
}

std::string write_manifest(const Manifest& manifest) {
  const CheckpointState& state = manifest.state;
  std::string text = "{\"format\": \"llmtrain-checkpoint\",\n";
  const auto member = [&](std::string_view name, const std::string& value) {
    text += fmt::format("\"{}\": {},\n", name, value);
  };
  member("version",
         fmt::format("[{}, {}]", checkpoint_format_major, manifest.has_places() ? checkpoint_format_minor : 0));
  member("step", fmt::to_string(state.step));
  member("run_id", json_text(state.run_id));
  member("samples", fmt::to_string(state.samples));
  const auto counters = listed(
      state.counters, [](const auto& entry) { return fmt::format("{}: {}", json_text(entry.first), entry.second); });
  const auto identity = listed(state.identity, [](const auto& entry) {
    return fmt::format("{}: {}", json_text(entry.first), json_text(entry.second));
  });
  const auto files = listed(manifest.files, [](const ManifestFile& file) {
    return fmt::format("{{\"name\": {}, \"size\": {}, \"xxh3_128\": {}}}", json_text(file.name), file.size,
                       json_text(file.digest));
  });
  auto next = manifest.pieces.begin();
  const auto tensors = listed(manifest.tensors, [&](const ManifestTensor& tensor) {
    const auto first = next;
    while (next != manifest.pieces.end() && next->piece.dataset == tensor.name) ++next;
    return fmt::format("{{\"name\": {}, \"dtype\": \"{}\", \"shape\": [{}]{}}}", json_text(tensor.name),
                       name_of(tensor.dtype), fmt::join(tensor.shape, ", "), pieces_text(std::span(first, next)));
  });
  member("counters", fmt::format("{{{}}}", counters));
  member("identity", fmt::format("{{{}}}", identity));
  member("writers", fmt::to_string(manifest.writers));
  member("files", fmt::format("[{}]", files));
  if (manifest.has_places()) {
    const StoredDeck& deck = *manifest.deck;
    member("deck", fmt::format("{{\"offset\": {}, \"size\": {}, \"xxh3_128\": {}}}", deck.offset, deck.bytes,
                               json_text(deck.digest)));
  }
  member("tensors", fmt::format("[{}]", tensors));
  return text + fmt::format("\"digest\": \"{}\"}}\n", digest_of(text.data(), text.size()));
}

}  // namespace llmtrain
