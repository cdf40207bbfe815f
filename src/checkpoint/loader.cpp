// SPDX-License-Identifier: Apache-2.0
/// Reading from any layout into any layout: the index of all stored pieces, and the copies between two pieces.
#include "llmtrain/checkpoint/loader.hpp"

#include <algorithm>
#include <map>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "llmtrain/base/error.hpp"
#include "llmtrain/base/files.hpp"
#include "llmtrain/checkpoint/geometry.hpp"
#include "shard.hpp"
#include "team.hpp"

namespace llmtrain {

CheckpointReader::CheckpointReader(const MpiComm& comm, Checkpoint checkpoint) : checkpoint_(std::move(checkpoint)) {
  std::vector<std::string> shards;
  for (const ManifestFile& file : checkpoint_.manifest.files) {
    if (is_shard_name(file.name)) shards.push_back(file.name);
  }
  std::string mine;
  team::agree(comm, [&] {
    const auto ranks = static_cast<std::size_t>(team::size(comm));
    for (auto i = static_cast<std::size_t>(team::rank(comm)); i < shards.size(); i += ranks) {
      mine += encode(ShardFile(checkpoint_.folder, shards[i]).scan());
    }
  });
  for (const std::string& text : team::all_gather(comm, mine)) {
    std::ranges::move(decode(text), std::back_inserter(pieces_));
  }
  sort_pieces(pieces_);
  // The same on all ranks: all throw or none.
  const std::vector<ManifestTensor> tensors = tensors_of(pieces_, ExitCode::checkpoint_damaged);
  const std::vector<ManifestTensor>& listed = checkpoint_.manifest.tensors;
  for (std::size_t i = 0; i < std::max(tensors.size(), listed.size()); ++i) {
    const bool same = i < tensors.size() && i < listed.size() && tensors[i].name == listed[i].name &&
                      tensors[i].dtype == listed[i].dtype && tensors[i].shape == listed[i].shape;
    require(same, ExitCode::checkpoint_damaged, "checkpoint {} is damaged: manifest and shards disagree about {}",
            checkpoint_.folder.string(), i < listed.size() ? listed[i].name : tensors[i].name);
  }
}

const ManifestTensor* CheckpointReader::find(const std::string& tensor) const {
  const std::vector<ManifestTensor>& all = checkpoint_.manifest.tensors;
  const auto found = std::ranges::lower_bound(all, tensor, {}, &ManifestTensor::name);
  return found != all.end() && found->name == tensor ? &*found : nullptr;
}

void CheckpointReader::read(std::span<const Piece> wanted) const {
  std::map<std::string, std::vector<Transfer>> by_shard;
  for (const Piece& target : wanted) {
    const std::string problem = piece_error(target);
    require(problem.empty(), ExitCode::internal, "bad piece of {}: {}", target.dataset, problem);
    const ManifestTensor* tensor = find(target.dataset);
    require(tensor != nullptr, ExitCode::checkpoint_incompatible, "checkpoint {} has no {}: it is of another model",
            checkpoint_.folder.string(), target.dataset);
    require(tensor->shape == target.global_shape && tensor->dtype == target.dtype, ExitCode::checkpoint_incompatible,
            "{} is {} {} in checkpoint {} and {} {} here", target.dataset, name_of(tensor->dtype), tensor->shape,
            checkpoint_.folder.string(), name_of(target.dtype), target.global_shape);
    std::int64_t covered = 0;
    const auto dataset_of = [](const StoredPiece& stored) -> const std::string& { return stored.piece.dataset; };
    const auto first = std::ranges::lower_bound(pieces_, target.dataset, {}, dataset_of);
    for (auto it = first; it != pieces_.end() && it->piece.dataset == target.dataset; ++it) {
      const StoredPiece& stored = *it;
      std::vector<CopyRun> runs = overlap(stored.piece, target);
      if (runs.empty()) continue;
      for (const CopyRun& run : runs) covered += run.elements();
      by_shard[stored.shard].push_back({&stored, &target, std::move(runs)});
    }
    require(covered == target.size(), ExitCode::checkpoint_damaged, "checkpoint {} gives {} of {} elements of {}",
            checkpoint_.folder.string(), covered, target.size(), target.dataset);
  }
  for (const auto& [name, transfers] : by_shard) read_transfers(checkpoint_.folder / name, transfers);
}

CheckpointState CheckpointReader::read_state() const {
  CheckpointState state = checkpoint_.manifest.state;
  state.deck = ShardFile(checkpoint_.folder, shard_name(0)).read_deck();
  return state;
}

std::vector<std::string> CheckpointReader::check_pieces() const {
  std::map<std::string, std::vector<const StoredPiece*>> by_shard;
  for (const StoredPiece& stored : pieces_) by_shard[stored.shard].push_back(&stored);
  std::vector<std::string> problems;
  for (auto& [name, pieces] : by_shard) {
    const PiecesReading found = read_pieces(checkpoint_.folder / name, std::move(pieces), Threads::all);
    for (const StoredPiece* stored : found.differing) problems.push_back(difference_of(*stored));
  }
  return problems;
}

CheckpointState read_checkpoint_state(const MpiComm& comm, const Checkpoint& checkpoint) {
  CheckpointState state = checkpoint.manifest.state;
  team::agree_on_root(comm, [&] { state.deck = ShardFile(checkpoint.folder, shard_name(0)).read_deck(); });
  state.deck = team::broadcast(comm, state.deck);
  return state;
}

void load_checkpoint(const MpiComm& comm, const Checkpoint& checkpoint, std::span<const Piece> wanted) {
  const CheckpointReader reader(comm, checkpoint);
  team::agree(comm, [&] { reader.read(wanted); });
}

void write_checkpoint_index(const CheckpointReader& reader) {
  const std::filesystem::path path = reader.checkpoint().folder / index_file_name;
  const Aside aside(path);
  write_index_file(aside.path(), reader.read_state(), reader.pieces());
  durable_rename(aside.path(), path);
}

}  // namespace llmtrain
