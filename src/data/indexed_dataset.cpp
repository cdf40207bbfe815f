// SPDX-License-Identifier: Apache-2.0
/// Checks of an .idx file, and reads of tokens.
#include "llmtrain/data/indexed_dataset.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <vector>

#include "llmtrain/base/beacon.hpp"
#include "llmtrain/base/digest.hpp"
#include "llmtrain/base/error.hpp"

namespace llmtrain {
namespace {

static_assert(std::endian::native == std::endian::little, ".bin and .idx files are little-endian");

template <class T>
T value_at(std::span<const std::byte> bytes, std::int64_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof(T));
  return value;
}

constexpr char remedy[] = "the file is damaged or no index of this kind: write it again";

IndexView parse_header(std::span<const std::byte> bytes, const std::string& name) {
  const auto size = static_cast<std::int64_t>(bytes.size());
  require(size >= index_header_bytes, ExitCode::bad_input,
          "{}: {} bytes are too few for an index, whose header has {}; {}", name, size, index_header_bytes, remedy);
  require(std::memcmp(bytes.data(), index_magic, sizeof index_magic) == 0, ExitCode::bad_input,
          "{}: byte 0: the first nine bytes are not those of an index (MMIDIDX); {}", name, remedy);
  const auto version = value_at<std::uint64_t>(bytes, 9);
  require(version == index_version, ExitCode::bad_input, "{}: byte 9: version {} is not known (only {}); {}", name,
          version, index_version, remedy);
  const auto code = value_at<std::uint8_t>(bytes, 17);
  IndexView view;
  view.type = static_cast<TokenType>(code);
  require(view.type == TokenType::uint16 || view.type == TokenType::int32, ExitCode::bad_input,
          "{}: byte 17: token type code {} is not supported; llmtrain reads 4 (int32) and 8 (uint16)", name, code);

  // Bounded by division before anything is multiplied: the counts may be any 64-bit number.
  const auto sequences = value_at<std::uint64_t>(bytes, 18);
  const auto bounds = value_at<std::uint64_t>(bytes, 26);
  const auto rest = static_cast<std::uint64_t>(size - index_header_bytes);
  require(sequences <= rest / 12, ExitCode::bad_input,
          "{}: byte 18: {} sequences need more than the file's {} bytes; {}", name, sequences, size, remedy);
  require(bounds >= 1 && bounds <= (rest - 12 * sequences) / 8 && 12 * sequences + 8 * bounds == rest,
          ExitCode::bad_input,
          "{}: byte 26: {} sequences and {} document bounds do not give the file's size of {} bytes; {}", name,
          sequences, bounds, size, remedy);
  view.sequences = static_cast<std::int64_t>(sequences);
  view.document_bounds = static_cast<std::int64_t>(bounds);
  view.lengths = bytes.data() + index_header_bytes;
  view.offsets = view.lengths + 4 * view.sequences;
  view.documents = view.offsets + 8 * view.sequences;
  return view;
}

constexpr std::int64_t beat_every = 4096;  // entries: a page or a few, which a slow file system may have to bring

void check_sequences(IndexView& view, std::span<const std::byte> bytes, std::int64_t bin_bytes,
                     const std::string& name) {
  const std::int64_t token_bytes = size_of(view.type);
  const std::int64_t offsets_at = index_header_bytes + 4 * view.sequences;
  std::int64_t expected = 0;  // <= bin_bytes + 2^33, so it cannot overflow
  for (std::int64_t i = 0; i < view.sequences; ++i) {
    if (i % beat_every == 0) Beacon::beat();
    const auto length = value_at<std::int32_t>(bytes, index_header_bytes + 4 * i);
    require(length >= 0, ExitCode::bad_input, "{}: byte {}: the length of sequence {} is {}; {}", name,
            index_header_bytes + 4 * i, i, length, remedy);
    const auto offset = value_at<std::int64_t>(bytes, offsets_at + 8 * i);
    require(offset == expected, ExitCode::bad_input,
            "{}: byte {}: sequence {} is said to start at byte {} of the .bin file, but the lengths before it end at "
            "{}; {}",
            name, offsets_at + 8 * i, i, offset, expected, remedy);
    expected += length * token_bytes;
    require(
        expected <= bin_bytes, ExitCode::bad_input,
        "{}: byte {}: sequence {} ends at byte {} of the .bin file, which has {} bytes; one of the two files is cut or "
        "belongs to another set: write both again",
        name, index_header_bytes + 4 * i, i, expected, bin_bytes);
  }
  require(
      expected == bin_bytes, ExitCode::bad_input,
      "{}: its sequences take {} bytes, but the .bin file has {}; the files do not belong together: write both again",
      name, expected, bin_bytes);
  view.tokens = expected / token_bytes;
}

void check_documents(const IndexView& view, std::span<const std::byte> bytes, const std::string& name) {
  const std::int64_t documents_at = index_header_bytes + 12 * view.sequences;
  std::int64_t previous = 0;
  for (std::int64_t i = 0; i < view.document_bounds; ++i) {
    if (i % beat_every == 0) Beacon::beat();
    const auto bound = value_at<std::int64_t>(bytes, documents_at + 8 * i);
    const bool sound = i == 0 ? bound == 0 : bound >= previous && bound <= view.sequences;
    require(sound, ExitCode::bad_input,
            "{}: byte {}: entry {} of the document index is {}; entries start at 0, do not fall and stay within the {} "
            "sequences; {}",
            name, documents_at + 8 * i, i, bound, view.sequences, remedy);
    previous = bound;
  }
  require(previous == view.sequences, ExitCode::bad_input,
          "{}: byte {}: the document index ends at {}, but there are {} sequences; {}", name,
          documents_at + 8 * (view.document_bounds - 1), previous, view.sequences, remedy);
}

}  // namespace

IndexView parse_index(std::span<const std::byte> bytes, std::int64_t bin_bytes, const std::string& name) {
  IndexView view = parse_header(bytes, name);
  check_sequences(view, bytes, bin_bytes, name);
  check_documents(view, bytes, name);
  return view;
}

IndexedDataset::IndexedDataset(const std::string& prefix) : IndexedDataset(prefix, prefix + ".idx", prefix + ".bin") {}

IndexedDataset::IndexedDataset(const std::string& prefix, const std::string& index, const std::string& tokens)
    : prefix_(prefix), index_(index), tokens_(tokens), view_(parse_index(index_.bytes(), tokens_.size(), index)) {}

StreamPlace IndexedDataset::place_of(std::int64_t token) const {
  LLMTRAIN_CHECK(token >= 0 && token < view_.tokens);
  // The last sequence that begins at or before the token; empty ones begin where the next one does.
  std::int64_t low = 0;
  std::int64_t high = view_.sequences;
  while (high - low > 1) {
    const std::int64_t middle = low + (high - low) / 2;
    (first_token(middle) <= token ? low : high) = middle;
  }
  return {low, token - first_token(low)};
}

std::int64_t IndexedDataset::document_of(std::int64_t sequence) const {
  LLMTRAIN_CHECK(sequence >= 0 && sequence < view_.sequences);
  // The last bound that is <= sequence; empty documents share their bound with the next one.
  std::int64_t low = 0;
  std::int64_t high = view_.document_bounds - 1;
  while (high - low > 1) {
    const std::int64_t middle = low + (high - low) / 2;
    (entry<std::int64_t>(view_.documents, middle) <= sequence ? low : high) = middle;
  }
  return low;
}

void IndexedDataset::read(std::int64_t sequence, std::int64_t offset, std::span<std::int32_t> out) const {
  LLMTRAIN_CHECK(sequence >= 0 && sequence < view_.sequences && offset >= 0);
  LLMTRAIN_CHECK(static_cast<std::int64_t>(out.size()) <= length(sequence) - offset);
  read_tokens(first_token(sequence) + offset, out);
}

void IndexedDataset::read_tokens(std::int64_t token, std::span<std::int32_t> out) const {
  LLMTRAIN_CHECK(token >= 0 && static_cast<std::int64_t>(out.size()) <= view_.tokens - token);
  std::int64_t at = token * size_of(view_.type);
  if (view_.type == TokenType::int32) {
    tokens_.read_at(at, std::as_writable_bytes(out));
    return;
  }
  std::array<std::uint16_t, 4096> raw;
  while (!out.empty()) {
    const auto part = std::span(raw).first(std::min(raw.size(), out.size()));
    tokens_.read_at(at, std::as_writable_bytes(part));
    std::copy(part.begin(), part.end(), out.begin());
    at += static_cast<std::int64_t>(part.size_bytes());
    out = out.subspan(part.size());
  }
}

std::string IndexedDataset::fingerprint() const {
  constexpr std::int64_t samples = 64;
  Digest digest;
  digest.add(index_.bytes().data(), index_.bytes().size());
  const std::int64_t size = tokens_.size();
  std::vector<std::byte> sample(static_cast<std::size_t>(std::min<std::int64_t>(size, 4096)));
  for (std::int64_t i = 0; i < samples && !sample.empty(); ++i) {
    tokens_.read_at((size - std::ssize(sample)) / (samples - 1) * i, sample);
    digest.add(sample.data(), sample.size());
  }
  return digest.hex();
}

}  // namespace llmtrain
