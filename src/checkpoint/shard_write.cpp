// SPDX-License-Identifier: Apache-2.0
/// Writing of shards and of checkpoint.h5, the virtual datasets over them.
#include <algorithm>

#include <fmt/format.h>

#include "files.hpp"
#include "llmtrain/base/error.hpp"
#include "llmtrain/base/inject.hpp"
#include "llmtrain/checkpoint/h5_writer.hpp"
#include "shard.hpp"

namespace llmtrain {

namespace {

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

WrittenShard write_shard(const std::filesystem::path& folder, const std::string& name, std::span<const Piece> pieces,
                         const std::string* deck) {
  WrittenShard shard{name, {}, {}, {}};
  std::vector<StoredPiece>& stored = shard.pieces;
  for (const Piece& piece : pieces) {
    if (piece.size() > 0) stored.push_back({piece, "", name, "", 0});
  }
  sort_pieces(stored);
  name_datasets(stored);
  fault_point("save.open");
  H5Writer file(folder / name);
  if (deck != nullptr) {
    const std::size_t bytes = std::max<std::size_t>(deck->size(), 1);
    const std::int64_t offset = file.write_text(deck_dataset, *deck);
    shard.deck = {offset, static_cast<std::int64_t>(bytes), digest_of(deck->c_str(), bytes)};
  }
  for (StoredPiece& entry : stored) {
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
