// SPDX-License-Identifier: Apache-2.0
/// Writing of shards and of checkpoint.h5, the virtual datasets over them.
#include <algorithm>
#include <tuple>

#include <fmt/format.h>

#include "files.hpp"
#include "llmtrain/base/error.hpp"
#include "llmtrain/base/inject.hpp"
#include "llmtrain/checkpoint/h5_writer.hpp"
#include "shard.hpp"

namespace llmtrain {

namespace {

auto key_of(const Piece& piece) {
  return std::tie(piece.dataset, piece.slice_start, piece.slice_shape, piece.flat_begin, piece.flat_end);
}

void describe(H5Writer& file, const StoredPiece& stored) {
  const Piece& piece = stored.piece;
  file.attribute(stored.dataset, "global_shape", piece.global_shape);
  file.attribute(stored.dataset, "slice_start", piece.slice_start);
  file.attribute(stored.dataset, "slice_shape", piece.slice_shape);
  file.attribute(stored.dataset, "flat_begin", piece.flat_begin);
  file.attribute(stored.dataset, "flat_end", piece.flat_end);
  file.attribute(stored.dataset, "digest", stored.digest);
}

}  // namespace

std::string shard_name(int rank) { return fmt::format("shard-{:05}.h5", rank); }

bool is_shard_name(std::string_view name) { return name.starts_with("shard-"); }

WrittenShard write_shard(const std::filesystem::path& folder, const std::string& name, std::span<const Piece> pieces,
                         const std::string* deck) {
  WrittenShard shard{name, {}, {}};
  std::vector<StoredPiece>& stored = shard.pieces;
  for (const Piece& piece : pieces) {
    if (piece.size() > 0) stored.push_back({piece, "", name, piece.dataset, 0});
  }
  sort_pieces(stored);
  fault_point("save.open");
  H5Writer file(folder / name);
  if (deck != nullptr) file.write_text(deck_dataset, *deck);
  int further = 0;
  for (std::size_t i = 0; i < stored.size(); ++i) {
    StoredPiece& entry = stored[i];
    further = i > 0 && stored[i - 1].piece.dataset == entry.piece.dataset ? further + 1 : 0;
    if (further > 0) entry.dataset += fmt::format("+{}", further);
    const std::int64_t elements = entry.piece.size();
    entry.digest = digest_of(entry.piece.data, static_cast<std::size_t>(entry.piece.bytes()));
    fault_point("save.piece");
    entry.offset = file.write(entry.dataset, entry.piece.dtype, std::span(&elements, 1), entry.piece.data);
    describe(file, entry);
  }
  fault_point("save.close");
  file.close();
  shard.facts = file.facts();
  return shard;
}

void verify_shard(const std::filesystem::path& folder, const WrittenShard& written, Threads threads) {
  fault_point("save.verify");
  std::vector<const StoredPiece*> pieces;
  for (const StoredPiece& piece : written.pieces) pieces.push_back(&piece);
  const PiecesReading found = read_pieces(folder / written.name, std::move(pieces), threads);
  constexpr const char* remedy = "the checkpoint just written is not what was in memory; check the disk and the memory";
  require(found.differing.empty(), ExitCode::io_error, "{}: {}",
          found.differing.empty() ? "" : difference_of(*found.differing.front()), remedy);
  require(found.facts.size == written.facts.size && found.facts.digest == written.facts.digest, ExitCode::io_error,
          "headers of {} read back differently: {}", written.name, remedy);
}

void sort_pieces(std::vector<StoredPiece>& pieces) {
  std::ranges::sort(pieces, [](const StoredPiece& a, const StoredPiece& b) {
    return std::tuple_cat(key_of(a.piece), std::tie(a.shard)) < std::tuple_cat(key_of(b.piece), std::tie(b.shard));
  });
}

std::vector<ManifestTensor> tensors_of(std::span<const StoredPiece> pieces, ExitCode code) {
  std::vector<ManifestTensor> tensors;
  std::vector<const Piece*> parts;
  for (std::size_t i = 0; i < pieces.size();) {
    const Piece& first = pieces[i].piece;
    parts.clear();
    for (; i < pieces.size() && pieces[i].piece.dataset == first.dataset; ++i) {
      const Piece& piece = pieces[i].piece;
      require(piece.dtype == first.dtype && piece.global_shape == first.global_shape, code,
              "pieces of {} disagree on its type or shape ({} and {})", first.dataset, pieces[i].shard,
              pieces[i - 1].shard);
      parts.push_back(&piece);
    }
    const std::string problem = coverage_error(parts);
    require(problem.empty(), code, "the pieces of {} do not make it whole: {}", first.dataset, problem);
    tensors.push_back({first.dataset, first.dtype, first.global_shape});
  }
  return tensors;
}

FileFacts write_index_file(const std::filesystem::path& path, const CheckpointState& state,
                           std::span<const StoredPiece> pieces) {
  H5Writer file(path);
  file.write_text(deck_dataset, state.deck);
  file.write("/state/step", {}, std::span(&state.step, 1));
  file.write("/state/samples", {}, std::span(&state.samples, 1));
  file.write_text("/state/run_id", state.run_id);
  for (const auto& [name, value] : state.counters) file.write("/state/counters/" + name, {}, std::span(&value, 1));
  for (const auto& [name, value] : state.identity) file.write_text("/state/identity/" + name, value);
  std::vector<VirtualSource> sources;
  for (std::size_t i = 0; i < pieces.size();) {
    const Piece& first = pieces[i].piece;
    sources.clear();
    for (; i < pieces.size() && pieces[i].piece.dataset == first.dataset; ++i) {
      const StoredPiece& stored = pieces[i];
      for (const PieceBox& box : boxes_of(stored.piece)) {
        sources.push_back({stored.shard, stored.dataset, stored.piece.size(), box.offset, box.start, box.shape});
      }
    }
    file.write_virtual(first.dataset, first.dtype, first.global_shape, sources);
  }
  file.close();
  return file.facts();
}

}  // namespace llmtrain
