// SPDX-License-Identifier: Apache-2.0
/// Inputs as blocks of whole lines, and which part of the inputs a rank reads.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "llmtrain/tools/byte_source.hpp"

namespace llmtrain {

/// The lines that begin in bytes [begin, end) of a file; of a packed file or a pipe always all.
struct InputPart {
  std::string path;
  std::int64_t begin = 0;
  std::int64_t end = 0;
  bool whole = false;  ///< all of the file, however long it is
};

/// An input as it was found.
struct InputFileFacts {
  std::string path;
  std::int64_t bytes = 0;  ///< 0 for a pipe
  bool divisible = false;  ///< a file that is not packed
};

/// The files that `names` stand for: a name with *, ? or [ that is no file itself is a pattern, and its matches follow in
/// the order of their bytes. Throws Error(missing_input) for a name that cannot be read, a folder, a pattern without match.
std::vector<InputFileFacts> find_inputs(const std::vector<std::string>& names);

/// The part of rank `rank`. The parts of all ranks, one after the other, are the inputs in their order, and they take about
/// as long: cut by bytes, packed files counted four times and never cut.
std::vector<InputPart> deal_inputs(const std::vector<InputFileFacts>& inputs, int rank, int ranks);

inline constexpr std::size_t json_padding = 64;  ///< readable bytes that simdjson wants after a line

/// Whole lines of one file.
struct LineBlock {
  std::string path;
  std::int64_t part_begin = 0;  ///< byte of the file from which lines are counted
  std::int64_t first_line = 0;  ///< lines before the block in its part
  std::int64_t offset = 0;      ///< of the first byte in the unpacked file
  std::int64_t consumed = 0;    ///< bytes of the file that were read for this block
  std::size_t size = 0;
  std::vector<char> bytes;  ///< `size` of them, and json_padding more

  std::string_view text() const { return {bytes.data(), size}; }
};

/// Reads parts as blocks of about `block_bytes`; a longer line is a block of its own. Only '\n' ends a line.
class BlockReader {
 public:
  static constexpr std::size_t block_bytes = std::size_t{1} << 20;

  BlockReader(std::vector<InputPart> parts, std::int64_t max_line_bytes, const std::atomic<bool>& stop);

  /// The next block, or none at the end or when stopped. Throws what ByteSource does, and Error(bad_input) for a line
  /// above the cap, unless it fits a block.
  std::optional<LineBlock> next();

 private:
  struct Lines {
    std::size_t bytes = 0;
    bool last = false;  ///< of the part
  };

  bool open_next_part();
  LineBlock read_block();
  /// How many bytes of `text`, which begins at offset_, are whole lines of this part.
  Lines whole_lines(std::string_view text) const;
  void skip_to_line_start();

  std::vector<InputPart> parts_;
  std::size_t next_part_ = 0;
  std::size_t max_line_bytes_;
  const std::atomic<bool>& stop_;
  std::unique_ptr<ByteSource> source_;
  InputPart part_;
  std::int64_t offset_ = 0;    // of the next line in the unpacked file
  std::int64_t lines_ = 0;     // of this part so far
  std::int64_t consumed_ = 0;  // of this part so far
  std::vector<char> rest_;     // bytes of the next line that were read already
};

/// The 1-based number, for messages, of the line that follows `lines` whole lines of a block; reads what stands before its
/// part.
std::int64_t line_number(const LineBlock& block, std::int64_t lines);

/// Says that the line which follows `lines` lines, `bytes` bytes of the block is above the cap.
std::string too_long(const LineBlock& block, std::int64_t lines, std::int64_t bytes, std::size_t max_line_bytes);

}  // namespace llmtrain
