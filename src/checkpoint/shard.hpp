// SPDX-License-Identifier: Apache-2.0
/// One shard file: written by one rank, read piecewise by anybody, trusted by nobody.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "files.hpp"
#include "llmtrain/checkpoint/geometry.hpp"
#include "llmtrain/checkpoint/loader.hpp"
#include "llmtrain/checkpoint/piece.hpp"

namespace llmtrain {

class H5Writer;

/// "shard-RRRRR.h5".
std::string shard_name(int rank);
bool is_shard_name(std::string_view name);

/// The file of virtual datasets, and the deck's dataset in it and in the first shard.
inline constexpr const char* index_file_name = "checkpoint.h5";
inline constexpr const char* deck_dataset = "/deck";
inline constexpr std::int64_t max_deck = std::int64_t{16} << 20;  ///< bytes of its text

/// A shard as it was written.
struct WrittenShard {
  std::string name;
  FileFacts facts;                  ///< from memory, not from the disk
  StoredDeck deck;                  ///< where it went in
  std::vector<StoredPiece> pieces;  ///< sorted by tensor
};

/// Writes the pieces that are not empty, sorted by tensor, slice and range. The deck goes in where it is not null. Throws
/// as H5Writer.
WrittenShard write_shard(const std::filesystem::path& folder, const std::string& name, std::span<const Piece> pieces,
                         const std::string* deck);

/// Reads a shard back from its disk. Throws io_error unless it is what was in memory.
void verify_shard(const std::filesystem::path& folder, const WrittenShard& written, Threads threads);

/// The headers of a shard. Every call throws checkpoint_damaged for what our writer does not make: links that are not
/// hard, virtual, external, chunked or filtered data, foreign types, impossible shapes, pieces that share bytes.
class ShardFile {
 public:
  ShardFile(const std::filesystem::path& folder, const std::string& name);
  ~ShardFile();

  /// The header of every piece in it, in the order of their bytes.
  std::vector<StoredPiece> scan() const;

  std::string read_deck() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// What of a stored piece goes where.
struct Transfer {
  const StoredPiece* stored = nullptr;
  const Piece* target = nullptr;
  std::vector<CopyRun> runs;

  std::int64_t elements() const {
    std::int64_t count = 0;
    for (const CopyRun& run : runs) count += run.elements();
    return count;
  }
  std::int64_t bytes() const { return elements() * size_of(target->dtype); }
};

/// Copies parts of one shard's pieces into the memory of others, by all threads. Throws io_error.
void read_transfers(const std::filesystem::path& path, std::span<const Transfer> transfers);

/// The same in one pass over the whole file, which is compared with what it and its pieces should be, by all threads;
/// a line for each thing that is wrong.
std::vector<std::string> prove_and_read(const std::filesystem::path& folder, const ManifestFile& file,
                                        std::vector<const StoredPiece*> pieces,
                                        std::span<const Transfer> transfers = {});

/// What one pass over a shard's bytes finds.
struct PiecesReading {
  FileFacts facts;
  std::vector<const StoredPiece*> differing;  ///< from their digests
};
PiecesReading read_pieces(const std::filesystem::path& path, std::vector<const StoredPiece*> pieces, Threads threads,
                          const Delivery& delivery = {});

/// The pieces that the manifest places in each shard.
std::map<std::string_view, std::vector<const StoredPiece*>> pieces_by_shard(const Manifest& manifest);

/// The line that tells of a piece that differs.
std::string difference_of(const StoredPiece& piece);

/// The deck from where the manifest says that it lies. Throws checkpoint_damaged, io_error.
std::string read_deck_at(const std::filesystem::path& folder, const StoredDeck& deck);

/// Throws checkpoint_damaged for what is wrong with a step folder.
[[noreturn]] void refuse_damaged(const std::filesystem::path& folder, std::span<const std::string> problems);

/// Stored pieces as text, one a line, to send them to other ranks.
std::string encode(std::span<const StoredPiece> pieces);
std::vector<StoredPiece> decode(std::string_view text);

/// Writes a new checkpoint.h5: the virtual datasets, the deck and the state. `pieces` are sorted by tensor.
FileFacts write_index_file(const std::filesystem::path& path, const CheckpointState& state,
                           std::span<const StoredPiece> pieces);

/// The order of stored pieces: by tensor, slice and range.
bool comes_before(const StoredPiece& a, const StoredPiece& b);
void sort_pieces(std::vector<StoredPiece>& pieces);

/// Gives sorted pieces their paths: the tensor's, and "+1", "+2" behind it for further pieces of it in the same shard.
void name_datasets(std::span<StoredPiece> pieces);

/// The tensors of sorted pieces. Throws Error(code) naming the tensor whose pieces disagree or do not cover it once.
std::vector<ManifestTensor> tensors_of(std::span<const StoredPiece> pieces, ExitCode code);

/// What is wrong with the places of a manifest that has them, or "": each inside of a shard, no two with the same byte.
std::string places_error(const Manifest& manifest);

}  // namespace llmtrain
