// SPDX-License-Identifier: Apache-2.0
/// What pieces in shards are called, in which order they are listed, and whether they can be what they claim to be.
#include <algorithm>
#include <map>
#include <tuple>

#include <fmt/format.h>

#include "llmtrain/base/error.hpp"
#include "shard.hpp"

namespace llmtrain {

namespace {

auto key_of(const StoredPiece& stored) {
  const Piece& piece = stored.piece;
  return std::tie(piece.dataset, piece.slice_start, piece.slice_shape, piece.flat_begin, piece.flat_end, stored.shard);
}

}  // namespace

std::string shard_name(int rank) { return fmt::format("shard-{:05}.h5", rank); }

bool is_shard_name(std::string_view name) { return name.starts_with("shard-"); }

bool comes_before(const StoredPiece& a, const StoredPiece& b) { return key_of(a) < key_of(b); }

void sort_pieces(std::vector<StoredPiece>& pieces) { std::ranges::sort(pieces, comes_before); }

void name_datasets(std::span<StoredPiece> pieces) {
  std::map<std::string_view, int> counts;  // of one tensor's pieces by shard
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    StoredPiece& stored = pieces[i];
    if (i > 0 && pieces[i - 1].piece.dataset != stored.piece.dataset) counts.clear();
    const int further = counts[stored.shard]++;
    stored.dataset = stored.piece.dataset;
    if (further > 0) stored.dataset += fmt::format("+{}", further);
  }
}

std::vector<ManifestTensor> tensors_of(std::span<const StoredPiece> pieces, ExitCode code) {
  std::vector<ManifestTensor> tensors;
  std::vector<const Piece*> parts;
  for (std::size_t i = 0; i < pieces.size();) {
    const StoredPiece& front = pieces[i];
    const Piece& first = front.piece;
    parts.clear();
    for (; i < pieces.size() && pieces[i].piece.dataset == first.dataset; ++i) {
      const Piece& piece = pieces[i].piece;
      require(piece.dtype == first.dtype && piece.global_shape == first.global_shape, code,
              "pieces of {} disagree on its type or shape ({} and {})", first.dataset, front.shard, pieces[i].shard);
      parts.push_back(&piece);
    }
    const std::string problem = coverage_error(parts);
    require(problem.empty(), code, "the pieces of {} do not make it whole: {}", first.dataset, problem);
    tensors.push_back({first.dataset, first.dtype, first.global_shape});
  }
  return tensors;
}

std::string places_error(const Manifest& manifest) {
  struct Place {
    std::string_view shard;
    std::int64_t begin, bytes;
    std::string_view name;
  };
  std::vector<Place> places;
  const std::string first = shard_name(0);
  places.push_back({first, manifest.deck->offset, manifest.deck->bytes, deck_dataset});
  for (const StoredPiece& stored : manifest.pieces) {
    places.push_back({stored.shard, stored.offset, stored.piece.bytes(), stored.piece.dataset});
  }
  std::map<std::string_view, std::int64_t> sizes;
  for (const ManifestFile& file : manifest.files) sizes[file.name] = file.size;
  for (const Place& place : places) {
    const auto file = sizes.find(place.shard);
    if (file == sizes.end() || !is_shard_name(place.shard)) return fmt::format("{} is in no shard", place.name);
    if (place.begin < 0 || place.bytes > file->second || place.begin > file->second - place.bytes) {
      return fmt::format("{} lies outside of {}", place.name, place.shard);
    }
  }
  std::ranges::sort(places, [](const Place& a, const Place& b) {
    return std::tie(a.shard, a.begin, a.bytes) < std::tie(b.shard, b.begin, b.bytes);
  });
  for (std::size_t i = 1; i < places.size(); ++i) {
    const Place& before = places[i - 1];
    if (before.shard == places[i].shard && before.begin + before.bytes > places[i].begin) {
      return fmt::format("{} and {} share bytes of {}", before.name, places[i].name, before.shard);
    }
  }
  return "";
}

std::map<std::string_view, std::vector<const StoredPiece*>> pieces_by_shard(const Manifest& manifest) {
  std::map<std::string_view, std::vector<const StoredPiece*>> by_shard;
  for (const StoredPiece& stored : manifest.pieces) by_shard[stored.shard].push_back(&stored);
  return by_shard;
}

std::string difference_of(const StoredPiece& piece) {
  return fmt::format("{} in {} differs from its digest", piece.piece.dataset, piece.shard);
}

}  // namespace llmtrain
