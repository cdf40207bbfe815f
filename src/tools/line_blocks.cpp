// SPDX-License-Identifier: Apache-2.0
/// Finding, dealing and reading of inputs.
#include "llmtrain/tools/line_blocks.hpp"

#include <glob.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "llmtrain/base/error.hpp"
#include "llmtrain/data/input_file.hpp"

namespace llmtrain {
namespace {

constexpr std::int64_t packed_weight = 4;  // of text, gzip leaves about a quarter

std::vector<std::string> matches_of(const std::string& pattern) {
  glob_t found{};
  std::vector<std::string> paths;
  if (::glob(pattern.c_str(), GLOB_NOSORT, nullptr, &found) == 0)
    paths.assign(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  ::globfree(&found);
  std::sort(paths.begin(), paths.end());  // glob's own order is the locale's
  return paths;
}

InputFileFacts facts_of(const std::string& path) {
  require(::access(path.c_str(), R_OK) == 0, ExitCode::missing_input, "cannot open {}: {}", path, errno_text(errno));
  struct stat status {};
  require(::stat(path.c_str(), &status) == 0, ExitCode::missing_input, "cannot open {}: {}", path, errno_text(errno));
  require(!S_ISDIR(status.st_mode), ExitCode::missing_input, "cannot read {}: it is a folder; name its files", path);
  if (!S_ISREG(status.st_mode)) return {path, 0, false};  // not opened here: what is read of a pipe is gone
  std::array<char, 4> first{};
  const InputFile file(path);
  const auto known = static_cast<std::size_t>(std::min<std::int64_t>(file.size(), first.size()));
  file.read_at(0, std::as_writable_bytes(std::span(first).first(known)));
  return {path, file.size(), packing_of(std::span(first).first(known)) == Packing::none};
}

std::int64_t weight_of(const InputFileFacts& input) { return input.bytes * (input.divisible ? 1 : packed_weight); }

/// a b / c, rounded down, for numbers whose product leaves 64 bits.
std::int64_t share(std::int64_t a, std::int64_t b, std::int64_t c) {
  __extension__ using Wide = __int128;
  return static_cast<std::int64_t>(static_cast<Wide>(a) * b / c);
}

}  // namespace

std::vector<InputFileFacts> find_inputs(const std::vector<std::string>& names) {
  std::vector<InputFileFacts> inputs;
  for (const std::string& name : names) {
    const bool pattern = name.find_first_of("*?[") != std::string::npos && ::access(name.c_str(), F_OK) != 0;
    if (!pattern) {
      inputs.push_back(facts_of(name));
      continue;
    }
    const std::vector<std::string> paths = matches_of(name);
    require(!paths.empty(), ExitCode::missing_input, "no file matches {}", name);
    for (const std::string& path : paths) inputs.push_back(facts_of(path));
  }
  return inputs;
}

std::vector<InputPart> deal_inputs(const std::vector<InputFileFacts>& inputs, int rank, int ranks) {
  std::int64_t all = 0;
  for (const InputFileFacts& input : inputs) all += weight_of(input);
  const std::int64_t mine_begin = share(all, rank, ranks), mine_end = share(all, rank + 1, ranks);
  std::vector<InputPart> parts;
  std::int64_t at = 0;
  for (const InputFileFacts& input : inputs) {
    const std::int64_t weight = weight_of(input);
    if (input.divisible) {
      const std::int64_t begin = std::clamp(mine_begin - at, std::int64_t{0}, weight);
      const std::int64_t end = std::clamp(mine_end - at, std::int64_t{0}, weight);
      if (begin < end) parts.push_back({input.path, begin, end, begin == 0 && end == weight});
    } else {
      // Whose share holds its middle; the last rank's holds the end of all.
      const std::int64_t middle = std::min(at + weight / 2, std::max<std::int64_t>(all - 1, 0));
      const bool mine = all == 0 ? rank == 0 : middle >= mine_begin && middle < mine_end;
      if (mine) parts.push_back({input.path, 0, input.bytes, true});
    }
    at += weight;
  }
  return parts;
}

BlockReader::BlockReader(std::vector<InputPart> parts, std::int64_t max_line_bytes, const std::atomic<bool>& stop)
    : parts_(std::move(parts)), max_line_bytes_(static_cast<std::size_t>(max_line_bytes)), stop_(stop) {}

bool BlockReader::open_next_part() {
  if (next_part_ == parts_.size()) return false;
  part_ = parts_[next_part_++];
  // The byte before tells whether a line begins at `begin`.
  offset_ = std::max<std::int64_t>(part_.begin - 1, 0);
  source_ = std::make_unique<ByteSource>(part_.path, offset_, stop_);
  lines_ = consumed_ = 0;
  rest_.clear();
  if (part_.begin > 0) skip_to_line_start();
  return true;
}

void BlockReader::skip_to_line_start() {
  std::vector<char> bytes(block_bytes);
  for (;;) {
    const std::size_t got = source_->read(bytes);
    const auto end = bytes.begin() + static_cast<std::ptrdiff_t>(got);
    const auto newline = std::find(bytes.begin(), end, '\n');
    offset_ += newline - bytes.begin() + (newline != end ? 1 : 0);
    if (newline != end) rest_.assign(newline + 1, end);
    if (got == 0 || newline != end) return;
  }
}

BlockReader::Lines BlockReader::whole_lines(std::string_view text) const {
  // The line that holds byte end - 1 is the last one of a part.
  const std::size_t last_byte = part_.whole ? text.size() : static_cast<std::size_t>(part_.end - 1 - offset_);
  if (last_byte < text.size()) {
    const std::size_t newline = text.find('\n', last_byte);
    if (newline != std::string_view::npos) return {newline + 1, true};
  }
  const std::size_t before = std::min(last_byte, text.size());
  const auto* newline = static_cast<const char*>(::memrchr(text.data(), '\n', before));
  return {newline == nullptr ? 0 : static_cast<std::size_t>(newline - text.data()) + 1, false};
}

LineBlock BlockReader::read_block() {
  LineBlock block{part_.path, part_.begin, lines_, offset_, 0, 0, std::move(rest_)};
  std::vector<char>& bytes = block.bytes;
  std::size_t size = bytes.size();
  Lines lines;
  for (std::size_t capacity = std::max(block_bytes, 2 * size);; capacity = 2 * size) {
    bytes.resize(capacity + json_padding);
    std::size_t got = 1;
    for (; got > 0 && size < capacity; size += got)
      got = source_->read(std::span(bytes).subspan(size, capacity - size));
    lines = whole_lines({bytes.data(), size});
    if (got == 0 && !lines.last) lines = {size, true};  // the last line may lack its '\n'
    if (lines.bytes > 0 || lines.last) break;
    require(size <= max_line_bytes_, ExitCode::bad_input, "{}", too_long(block, 0, 0, max_line_bytes_));
  }
  rest_.assign(bytes.begin() + static_cast<std::ptrdiff_t>(lines.bytes),
               bytes.begin() + static_cast<std::ptrdiff_t>(size));
  block.size = lines.bytes;
  bytes.resize(block.size + json_padding);
  block.consumed = source_->consumed() - std::exchange(consumed_, source_->consumed());
  lines_ += std::count(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(block.size), '\n');
  offset_ += static_cast<std::int64_t>(block.size);
  if (lines.last) source_.reset();
  return block;
}

std::optional<LineBlock> BlockReader::next() {
  while (!stop_ && (source_ != nullptr || open_next_part())) {
    if (!part_.whole && offset_ >= part_.end) {  // what is left begins in the next part
      source_.reset();
      continue;
    }
    LineBlock block = read_block();
    if (!stop_ && block.size > 0) return block;
  }
  return std::nullopt;
}

std::string too_long(const LineBlock& block, std::int64_t lines, std::int64_t bytes, std::size_t max_line_bytes) {
  return fmt::format("{}:{}: the line at byte {} is longer than {} bytes; raise --max-line-bytes or cut the document",
                     block.path, line_number(block, lines), block.offset + bytes, max_line_bytes);
}

std::int64_t line_number(const LineBlock& block, std::int64_t lines) {
  std::int64_t before = 0;
  if (block.part_begin > 0) {
    const InputFile file(block.path);
    std::vector<char> bytes(BlockReader::block_bytes);
    std::int64_t at = 0;
    bool inside = true;  // up to the line feed before the part's first line
    while (inside && at < file.size()) {
      const auto count = std::min<std::int64_t>(file.size() - at, static_cast<std::int64_t>(bytes.size()));
      file.read_at(at, std::as_writable_bytes(std::span(bytes).first(static_cast<std::size_t>(count))));
      for (std::int64_t i = 0; i < count && inside; ++i) {
        if (bytes[static_cast<std::size_t>(i)] != '\n') continue;
        ++before;
        inside = at + i < block.part_begin - 1;
      }
      at += count;
    }
  }
  return before + block.first_line + lines + 1;
}

}  // namespace llmtrain
