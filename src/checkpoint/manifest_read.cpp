// SPDX-License-Identifier: Apache-2.0
/// Strict reading of manifest.json: its own digest first, then types, ranges and names of every member used.
#include <algorithm>
#include <optional>
#include <set>

#include <fmt/format.h>
#include <simdjson.h>

#include "llmtrain/base/error.hpp"
#include "llmtrain/checkpoint/geometry.hpp"
#include "llmtrain/checkpoint/manifest.hpp"
#include "shard.hpp"

namespace llmtrain {

namespace {

namespace dom = simdjson::dom;

constexpr std::string_view digest_member = "\"digest\": \"";
constexpr std::size_t digest_length = 32;
constexpr std::size_t max_extents = 8;
constexpr std::int64_t max_writers = 10'000'000;
constexpr std::int64_t max_file = std::int64_t{1} << 60;  // bytes

bool is_digest(std::string_view text) {
  return text.size() == digest_length && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

std::optional<DType> dtype_named(std::string_view name) {
  for (const DType dtype : {DType::fp64, DType::fp32, DType::bf16, DType::fp16, DType::fp8_e4m3, DType::fp8_e5m2,
                            DType::int64, DType::int32, DType::uint8}) {
    if (name_of(dtype) == name) return dtype;
  }
  return std::nullopt;
}

/// Compares the text before the last line with the digest in that line.
void check_digest(std::string_view text, std::string_view where) {
  constexpr std::string_view end = "\"}\n";
  const std::size_t last_line = digest_member.size() + digest_length + end.size();
  const bool closed = text.size() > last_line && text.ends_with(end) && text[text.size() - last_line - 1] == '\n' &&
                      text.substr(text.size() - last_line).starts_with(digest_member);
  require(closed, ExitCode::checkpoint_damaged, "{} does not end with its digest", where);
  const std::string_view body = text.substr(0, text.size() - last_line);
  const std::string_view digest = text.substr(body.size() + digest_member.size(), digest_length);
  require(digest == digest_of(body.data(), body.size()), ExitCode::checkpoint_damaged,
          "{} has other contents than were written (digest differs)", where);
}

/// Members of one object by name, each of the expected type or checkpoint_damaged.
class Members {
 public:
  Members(dom::element value, std::string_view where) : where_(where) {
    require(value.get(object_) == simdjson::SUCCESS, ExitCode::checkpoint_damaged, "{} is not made of objects", where);
  }

  template <class T>
  T get(std::string_view name) const {
    T value{};
    require(object_[name].get(value) == simdjson::SUCCESS, ExitCode::checkpoint_damaged,
            "{}: member '{}' is missing or of another type", where_, name);
    return value;
  }

  std::int64_t get_count(std::string_view name, std::int64_t least, std::int64_t most) const {
    const auto value = get<std::int64_t>(name);
    require(value >= least && value <= most, ExitCode::checkpoint_damaged, "{}: '{}' is {}", where_, name, value);
    return value;
  }

  /// A list of up to `max_extents` and one more: too many are seen as such.
  std::vector<std::int64_t> get_integers(std::string_view name) const {
    std::vector<std::int64_t> values;
    for (const dom::element element : get<dom::array>(name)) {
      std::int64_t value = 0;
      require(element.get(value) == simdjson::SUCCESS && values.size() <= max_extents, ExitCode::checkpoint_damaged,
              "{}: '{}' is no list of a few integers", where_, name);
      values.push_back(value);
    }
    return values;
  }

  std::string get_digest() const {
    const auto digest = get<std::string_view>("xxh3_128");
    require(is_digest(digest), ExitCode::checkpoint_damaged, "{} lists a digest that is none", where_);
    return std::string(digest);
  }

 private:
  dom::object object_;
  std::string_view where_;
};

/// Returns the minor version.
std::int64_t check_version(const Members& root, std::string_view where) {
  require(root.get<std::string_view>("format") == "llmtrain-checkpoint", ExitCode::checkpoint_damaged,
          "{} is not the manifest of a checkpoint", where);
  std::int64_t major = 0;
  std::int64_t minor = 0;
  const auto version = root.get<dom::array>("version");
  require(version.size() == 2 && version.at(0).get(major) == simdjson::SUCCESS &&
              version.at(1).get(minor) == simdjson::SUCCESS && major >= 1 && minor >= 0,
          ExitCode::checkpoint_damaged, "{}: 'version' is not two numbers", where);
  require(major <= checkpoint_format_major, ExitCode::checkpoint_incompatible,
          "{} has format version {}.{}; this llmtrain reads up to {}.*: use a newer one", where, major, minor,
          checkpoint_format_major);
  return minor;
}

template <class Value, class Map>
void read_map(const Members& root, std::string_view name, Map& map, std::string_view where) {
  const auto object = root.get<dom::object>(name);
  for (const auto& [key, element] : object) {
    Value value{};
    require(element.get(value) == simdjson::SUCCESS && valid_file_name(key), ExitCode::checkpoint_damaged,
            "{}: '{}' has a bad entry", where, name);
    map[std::string(key)] = value;
  }
}

ManifestFile read_file(dom::element element, std::string_view where) {
  const Members members(element, where);
  ManifestFile file;
  file.name = members.get<std::string_view>("name");
  file.size = members.get_count("size", 0, max_file);
  file.digest = members.get_digest();
  require(valid_file_name(file.name), ExitCode::checkpoint_damaged, "{} lists a file by a name that is not allowed",
          where);
  return file;
}

ManifestTensor read_tensor(dom::element element, std::string_view where) {
  const Members members(element, where);
  ManifestTensor tensor;
  tensor.name = members.get<std::string_view>("name");
  require(valid_dataset_name(tensor.name), ExitCode::checkpoint_damaged,
          "{} lists a tensor by a name that is not allowed", where);
  const std::optional<DType> dtype = dtype_named(members.get<std::string_view>("dtype"));
  require(dtype.has_value(), ExitCode::checkpoint_damaged, "{}: {} has an unknown element type", where, tensor.name);
  tensor.dtype = *dtype;
  tensor.shape = members.get_integers("shape");
  const bool has_extents = !tensor.shape.empty() && std::ranges::min(tensor.shape) >= 1;
  const std::int64_t volume = has_extents ? checked_volume(tensor.shape) : 0;
  require(tensor.shape.size() <= max_extents && volume >= 1 && volume <= std::int64_t{1} << 59,
          ExitCode::checkpoint_damaged, "{}: {} has an impossible shape", where, tensor.name);
  return tensor;
}

/// Appends the pieces of a tensor.
void read_pieces_of(const ManifestTensor& tensor, dom::element element, std::vector<StoredPiece>& pieces,
                    std::string_view where) {
  for (const dom::element entry : Members(element, where).get<dom::array>("pieces")) {
    const Members members(entry, where);
    StoredPiece stored;
    stored.shard = members.get<std::string_view>("file");
    stored.offset = members.get_count("offset", 0, max_file);
    stored.digest = members.get_digest();
    Piece& piece = stored.piece;
    piece.dataset = tensor.name;
    piece.dtype = tensor.dtype;
    piece.global_shape = tensor.shape;
    piece.slice_start = members.get_integers("start");
    piece.slice_shape = members.get_integers("shape");
    const std::vector<std::int64_t> range = members.get_integers("range");
    require(range.size() == 2, ExitCode::checkpoint_damaged, "{}: a range of {} is no range", where, tensor.name);
    piece.flat_begin = range[0];
    piece.flat_end = range[1];
    const std::string problem = piece_error(piece);
    require(problem.empty(), ExitCode::checkpoint_damaged, "{}: {}: {}", where, tensor.name, problem);
    require(piece.size() > 0 && (pieces.empty() || comes_before(pieces.back(), stored)), ExitCode::checkpoint_damaged,
            "{}: pieces of {} are empty or not in order", where, tensor.name);
    pieces.push_back(std::move(stored));
  }
}

StoredDeck read_deck_place(dom::element element, std::string_view where) {
  const Members members(element, where);
  return {members.get_count("offset", 0, max_file), members.get_count("size", 1, max_deck), members.get_digest()};
}

/// Where everything lies, and that it can lie there.
void read_places(const Members& root, Manifest& manifest, std::string_view where) {
  manifest.deck = read_deck_place(root.get<dom::element>("deck"), where);
  auto tensor = manifest.tensors.begin();
  for (const dom::element element : root.get<dom::array>("tensors")) {
    read_pieces_of(*tensor++, element, manifest.pieces, where);
  }
  const std::string problem = places_error(manifest);
  require(problem.empty(), ExitCode::checkpoint_damaged, "{}: {}", where, problem);
  std::size_t whole = 0;
  try {
    whole = tensors_of(manifest.pieces, ExitCode::checkpoint_damaged).size();
  } catch (const Error& error) {
    fail(error.code(), "{}: {}", where, error.what());
  }
  require(whole == manifest.tensors.size(), ExitCode::checkpoint_damaged, "{} lists a tensor without pieces", where);
  name_datasets(manifest.pieces);
}

}  // namespace

Manifest parse_manifest(std::string_view text, std::string_view where) {
  check_digest(text, where);
  dom::parser parser;
  dom::element document;
  require(parser.parse(text.data(), text.size()).get(document) == simdjson::SUCCESS, ExitCode::checkpoint_damaged,
          "{} is not JSON", where);
  const Members root(document, where);
  const std::int64_t minor = check_version(root, where);
  Manifest manifest;
  manifest.state.step = root.get_count("step", 0, std::int64_t{1} << 60);
  manifest.state.run_id = root.get<std::string_view>("run_id");
  manifest.state.samples = root.get_count("samples", 0, std::int64_t{1} << 60);
  read_map<std::int64_t>(root, "counters", manifest.state.counters, where);
  read_map<std::string_view>(root, "identity", manifest.state.identity, where);
  manifest.writers = static_cast<int>(root.get_count("writers", 1, max_writers));
  std::set<std::string> names;
  for (const dom::element element : root.get<dom::array>("files")) {
    manifest.files.push_back(read_file(element, where));
    require(names.insert(manifest.files.back().name).second, ExitCode::checkpoint_damaged, "{} lists {} twice", where,
            manifest.files.back().name);
  }
  for (const dom::element element : root.get<dom::array>("tensors")) {
    manifest.tensors.push_back(read_tensor(element, where));
    const std::size_t count = manifest.tensors.size();
    require(count < 2 || manifest.tensors[count - 2].name < manifest.tensors[count - 1].name,
            ExitCode::checkpoint_damaged, "{}: tensors are not in order at {}", where, manifest.tensors.back().name);
  }
  if (minor > 0) read_places(root, manifest, where);
  return manifest;
}

}  // namespace llmtrain
