// SPDX-License-Identifier: Apache-2.0
/// Reading from any layout into any layout: which stored pieces have what is wanted, and who reads which file.
#include "llmtrain/checkpoint/loader.hpp"

#include <algorithm>
#include <map>
#include <sstream>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "llmtrain/base/error.hpp"
#include "llmtrain/base/files.hpp"
#include "llmtrain/checkpoint/deal.hpp"
#include "llmtrain/checkpoint/geometry.hpp"
#include "shard.hpp"
#include "team.hpp"

namespace llmtrain {

namespace {

using TransfersByShard = std::map<std::string, std::vector<Transfer>>;

/// What of which shard goes where. Throws as CheckpointReader::read.
TransfersByShard transfers_of(const CheckpointReader& reader, std::span<const Piece> wanted) {
  const std::string folder = reader.checkpoint().folder.string();
  TransfersByShard by_shard;
  for (const Piece& target : wanted) {
    const std::string problem = piece_error(target);
    require(problem.empty(), ExitCode::internal, "bad piece of {}: {}", target.dataset, problem);
    const ManifestTensor* tensor = reader.find(target.dataset);
    require(tensor != nullptr, ExitCode::checkpoint_incompatible, "checkpoint {} has no {}: it is of another model",
            folder, target.dataset);
    require(tensor->shape == target.global_shape && tensor->dtype == target.dtype, ExitCode::checkpoint_incompatible,
            "{} is {} {} in checkpoint {} and {} {} here", target.dataset, name_of(tensor->dtype), tensor->shape,
            folder, name_of(target.dtype), target.global_shape);
    std::int64_t covered = 0;
    const auto dataset_of = [](const StoredPiece& stored) -> const std::string& { return stored.piece.dataset; };
    const auto first = std::ranges::lower_bound(reader.pieces(), target.dataset, {}, dataset_of);
    for (auto it = first; it != reader.pieces().end() && it->piece.dataset == target.dataset; ++it) {
      Transfer transfer{&*it, &target, overlap(it->piece, target)};
      if (transfer.runs.empty()) continue;
      covered += transfer.elements();
      by_shard[it->shard].push_back(std::move(transfer));
    }
    require(covered == target.size(), ExitCode::checkpoint_damaged, "checkpoint {} gives {} of {} elements of {}",
            folder, covered, target.size(), target.dataset);
  }
  return by_shard;
}

/// The files that a load proves, dealt out by what each rank wants of them. Collective.
std::vector<const ManifestFile*> files_to_prove(const MpiComm& comm, const Manifest& manifest,
                                                const TransfersByShard& by_shard) {
  std::vector<const ManifestFile*> files;
  std::vector<std::int64_t> sizes;
  std::string mine;
  for (const ManifestFile& file : manifest.files) {
    if (file.name == index_file_name) continue;
    if (const auto transfers = by_shard.find(file.name); transfers != by_shard.end()) {
      std::int64_t bytes = 0;
      for (const Transfer& transfer : transfers->second) bytes += transfer.bytes();
      mine += fmt::format("{} {} ", files.size(), bytes);
    }
    files.push_back(&file);
    sizes.push_back(file.size);
  }
  std::vector<FileNeed> needs;
  int rank = 0;
  for (const std::string& text : team::all_gather(comm, mine)) {
    std::istringstream words(text);
    for (FileNeed need{rank, 0, 0}; words >> need.file >> need.bytes;) needs.push_back(need);
    ++rank;
  }
  const std::vector<int> dealt = deal_files(sizes, needs, rank);
  std::vector<const ManifestFile*> own;
  for (std::size_t i = 0; i < files.size(); ++i) {
    if (dealt[i] == team::rank(comm)) own.push_back(files[i]);
  }
  return own;
}

/// Proves all files; what this rank wants of those dealt to it is read with that, and gone from `by_shard`. Collective.
void prove_files(const MpiComm& comm, const Checkpoint& checkpoint, TransfersByShard& by_shard) {
  std::string mine;
  const std::vector<const ManifestFile*> own = files_to_prove(comm, checkpoint.manifest, by_shard);
  team::agree(comm, [&] {
    auto pieces = pieces_by_shard(checkpoint.manifest);
    for (const ManifestFile* file : own) {
      const auto transfers = by_shard.extract(file->name);
      std::span<const Transfer> own_transfers;
      if (transfers) own_transfers = transfers.mapped();
      for (const std::string& line :
           prove_and_read(checkpoint.folder, *file, std::move(pieces[file->name]), own_transfers)) {
        mine += line + "\n";
      }
    }
  });
  const std::vector<std::string> problems = team::all_lines(comm, mine);
  team::agree(comm, [&] {
    if (!problems.empty()) refuse_damaged(checkpoint.folder, problems);
  });
}

/// Completes a manifest of format 1.0 by the headers of its shards. Collective.
void read_headers(const MpiComm& comm, const std::filesystem::path& folder, Manifest& manifest) {
  std::vector<std::string> shards;
  for (const ManifestFile& file : manifest.files) {
    if (is_shard_name(file.name)) shards.push_back(file.name);
  }
  std::string mine;
  team::agree(comm, [&] {
    const auto ranks = static_cast<std::size_t>(team::size(comm));
    for (auto i = static_cast<std::size_t>(team::rank(comm)); i < shards.size(); i += ranks) {
      mine += encode(ShardFile(folder, shards[i]).scan());
    }
  });
  for (const std::string& text : team::all_gather(comm, mine)) {
    std::ranges::move(decode(text), std::back_inserter(manifest.pieces));
  }
  sort_pieces(manifest.pieces);
  // The same on all ranks: all throw or none.
  const std::vector<ManifestTensor> tensors = tensors_of(manifest.pieces, ExitCode::checkpoint_damaged);
  const std::vector<ManifestTensor>& listed = manifest.tensors;
  for (std::size_t i = 0; i < std::max(tensors.size(), listed.size()); ++i) {
    const bool same = i < tensors.size() && i < listed.size() && tensors[i].name == listed[i].name &&
                      tensors[i].dtype == listed[i].dtype && tensors[i].shape == listed[i].shape;
    require(same, ExitCode::checkpoint_damaged, "checkpoint {} is damaged: manifest and shards disagree about {}",
            folder.string(), i < listed.size() ? listed[i].name : tensors[i].name);
  }
}

std::string deck_of(const Checkpoint& checkpoint) {
  const auto& [folder, manifest, proven] = checkpoint;
  return manifest.has_places() ? read_deck_at(folder, *manifest.deck) : ShardFile(folder, shard_name(0)).read_deck();
}

}  // namespace

CheckpointReader::CheckpointReader(const MpiComm& comm, Checkpoint checkpoint) : checkpoint_(std::move(checkpoint)) {
  if (!checkpoint_.manifest.has_places()) read_headers(comm, checkpoint_.folder, checkpoint_.manifest);
}

const ManifestTensor* CheckpointReader::find(const std::string& tensor) const {
  const std::vector<ManifestTensor>& all = checkpoint_.manifest.tensors;
  const auto found = std::ranges::lower_bound(all, tensor, {}, &ManifestTensor::name);
  return found != all.end() && found->name == tensor ? &*found : nullptr;
}

void CheckpointReader::read(std::span<const Piece> wanted) const {
  LLMTRAIN_CHECK(checkpoint_.proven);
  for (const auto& [name, transfers] : transfers_of(*this, wanted))
    read_transfers(checkpoint_.folder / name, transfers);
}

void CheckpointReader::load(const MpiComm& comm, std::span<const Piece> wanted) {
  TransfersByShard by_shard;
  team::agree(comm, [&] { by_shard = transfers_of(*this, wanted); });
  if (!checkpoint_.proven) prove_files(comm, checkpoint_, by_shard);
  checkpoint_.proven = true;
  team::agree(comm, [&] {
    for (const auto& [name, transfers] : by_shard) read_transfers(checkpoint_.folder / name, transfers);
  });
}

CheckpointState CheckpointReader::read_state() const {
  CheckpointState state = checkpoint_.manifest.state;
  state.deck = deck_of(checkpoint_);
  return state;
}

std::vector<std::string> CheckpointReader::check_pieces() const {
  std::vector<std::string> problems;
  for (auto& [name, pieces] : pieces_by_shard(checkpoint_.manifest)) {
    const PiecesReading found = read_pieces(checkpoint_.folder / name, std::move(pieces), Threads::all);
    for (const StoredPiece* stored : found.differing) problems.push_back(difference_of(*stored));
  }
  return problems;
}

std::vector<std::string> CheckpointReader::check_headers() const {
  std::map<std::string, std::vector<StoredPiece>> by_shard;
  for (const ManifestFile& file : checkpoint_.manifest.files) {
    if (is_shard_name(file.name)) by_shard[file.name];
  }
  for (const StoredPiece& stored : pieces()) by_shard[stored.shard].push_back(stored);
  std::vector<std::string> problems;
  for (const auto& [name, listed] : by_shard) {
    const ShardFile shard(checkpoint_.folder, name);
    std::vector<StoredPiece> found = shard.scan();
    sort_pieces(found);
    if (encode(found) != encode(listed)) {
      problems.push_back(fmt::format("{}: its HDF5 headers say other things of its tensors than the manifest", name));
    }
    if (name == shard_name(0) && shard.read_deck() != deck_of(checkpoint_)) {
      problems.push_back(fmt::format("{}: HDF5 reads another {} than the manifest says", name, deck_dataset));
    }
  }
  return problems;
}

CheckpointState read_checkpoint_state(const MpiComm& comm, const Checkpoint& checkpoint) {
  CheckpointState state = checkpoint.manifest.state;
  team::agree_on_root(comm, [&] { state.deck = deck_of(checkpoint); });
  state.deck = team::broadcast(comm, state.deck);
  return state;
}

void load_checkpoint(const MpiComm& comm, const Checkpoint& checkpoint, std::span<const Piece> wanted) {
  CheckpointReader(comm, checkpoint).load(comm, wanted);
}

void write_checkpoint_index(const CheckpointReader& reader) {
  const std::filesystem::path path = reader.checkpoint().folder / index_file_name;
  const Aside aside(path);
  write_index_file(aside.path(), reader.read_state(), reader.pieces());
  durable_rename(aside.path(), path);
}

}  // namespace llmtrain
