// SPDX-License-Identifier: Apache-2.0
/// From the safetensors files of a folder to pieces of a checkpoint: every tensor is asked for once, and none is left.
#include <algorithm>
#include <set>

#include <fmt/ranges.h>
#include <simdjson.h>

#include "huggingface_names.hpp"
#include "llmtrain/base/error.hpp"
#include "llmtrain/base/json.hpp"
#include "llmtrain/checkpoint/geometry.hpp"
#include "llmtrain/checkpoint/huggingface.hpp"
#include "llmtrain/checkpoint/manifest.hpp"
#include "numbers.hpp"
#include "spill_file.hpp"

namespace llmtrain {

namespace {

namespace fs = std::filesystem;
namespace dom = simdjson::dom;

constexpr std::uintmax_t max_json_bytes = 100'000'000;
constexpr std::int64_t window_bytes = std::int64_t{16} << 20;

std::string shown(std::string_view name) { return json_string(name.substr(0, 200)); }

/// A tensor of a file and where it is.
struct Found {
  const SafetensorsFile* file = nullptr;
  const SafeTensor* tensor = nullptr;
  explicit operator bool() const { return file != nullptr; }
};

/// The files that an index lists, each a plain name, and in `map` which one holds which tensor.
std::set<std::string> read_index(const fs::path& path, std::map<std::string, std::string>& map) {
  const std::string where = path.string();
  const std::string text = read_huggingface_json(path);
  dom::parser parser;
  dom::object object, members;
  require(parser.parse(text).get(object) == simdjson::SUCCESS && object["weight_map"].get(members) == simdjson::SUCCESS,
          ExitCode::bad_input, "{} is not a JSON object with a weight_map", where);
  std::set<std::string> files;
  for (const auto& [tensor, value] : members) {
    std::string_view file;
    require(value.get(file) == simdjson::SUCCESS && valid_file_name(file) && file.ends_with(".safetensors"),
            ExitCode::bad_input, "{}: {} is not in a safetensors file of the same folder", where, shown(tensor));
    require(map.emplace(tensor, file).second, ExitCode::bad_input, "{} lists {} twice", where, shown(tensor));
    files.emplace(file);
  }
  require(!files.empty(), ExitCode::bad_input, "{} lists no file", where);
  return files;
}

/// What a file holds besides parameters: GPT-2's causal masks, Llama's frequencies.
bool is_buffer(std::string_view name) {
  return name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias") || name.ends_with(".rotary_emb.inv_freq");
}

/// All tensors of some files by name; what nobody took is told at the end.
class Tensors {
 public:
  Tensors(const fs::path& folder, std::span<const SafetensorsFile> files) : folder_(folder.string()) {
    for (const SafetensorsFile& file : files) {
      for (const SafeTensor& tensor : file.header().tensors) {
        const bool fresh = all_.emplace(tensor.name, Found{&file, &tensor}).second;
        require(fresh, ExitCode::bad_input, "{} is in two files of {}", shown(tensor.name), folder_);
      }
    }
  }

  /// The tensor, by its name with or without `prefix`.
  Found take(const std::string& name, std::string_view prefix) {
    const Found whole = take(name);
    const Found bare = name.starts_with(prefix) ? take(name.substr(prefix.size())) : Found{};
    require(!whole || !bare, ExitCode::bad_input, "{} holds both {} and {}", folder_, name, name.substr(prefix.size()));
    return whole ? whole : bare;
  }

  /// Throws unless all that is left are buffers.
  void check_rest() {
    std::erase_if(all_, [](const auto& entry) { return is_buffer(entry.first); });
    require(all_.empty(), ExitCode::bad_input, "{} holds {} {} that no layer of this model has, the first {}", folder_,
            all_.size(), all_.size() == 1 ? "tensor" : "tensors", all_.empty() ? "" : shown(all_.begin()->first));
  }

 private:
  Found take(const std::string& name) {
    const auto found = all_.find(name);
    if (found == all_.end()) return {};
    const Found result = found->second;
    all_.erase(found);
    return result;
  }

  std::string folder_;
  std::map<std::string, Found, std::less<>> all_;
};

/// Rows of a tensor, converted; a window at a time.
class RowReader {
 public:
  RowReader(Found source, DType dtype) : source_(source), from_(*safetensors_dtype(source.tensor->type)), to_(dtype) {}

  /// Elements [begin, begin + count) into `out`.
  void read(std::int64_t begin, std::span<std::byte> out) {
    const std::int64_t count = static_cast<std::int64_t>(out.size()) / size_of(to_);
    stored_.resize(static_cast<std::size_t>(count * size_of(from_)));
    source_.file->read(*source_.tensor, begin * size_of(from_), stored_);
    const std::int64_t lost = convert_numbers(from_, stored_, to_, out);
    require(lost < 0, ExitCode::bad_input,
            "{}: element {} of {} is too large for {}: import with precision.compute "
            "fp64",
            source_.file->path(), begin + lost, shown(source_.tensor->name), name_of(to_));
  }

 private:
  Found source_;
  DType from_, to_;
  std::vector<std::byte> stored_;
};

/// The part of a tensor that is one of our sections.
struct SectionSource {
  Found source;
  bool transposed = false;
  std::int64_t begin = 0;  ///< the section's first row, or column if transposed, in the tensor
  std::int64_t rows = 0;   ///< of the section
  std::int64_t cols = 0;

  void read(DType dtype, std::span<std::byte> out) const {
    RowReader reader(source, dtype);
    const std::int64_t width = size_of(dtype);
    const std::int64_t row_elements = transposed ? source.tensor->shape[1] : cols;
    const std::int64_t file_rows = transposed ? cols : rows;
    const std::int64_t step = std::max<std::int64_t>(window_bytes / (row_elements * width), 1);
    std::vector<std::byte> window;
    for (std::int64_t first = 0; first < file_rows; first += step) {
      const std::int64_t count = std::min(step, file_rows - first);
      const auto bytes = static_cast<std::size_t>(count * row_elements * width);
      if (!transposed) {
        reader.read((begin + first) * cols, out.subspan(static_cast<std::size_t>(first * cols * width), bytes));
        continue;
      }
      window.resize(bytes);
      reader.read(first * row_elements, window);
      copy_transposed(width, count, rows, window.data() + begin * width, row_elements, out.data() + first * width,
                      cols);
    }
  }
};

Piece whole_piece(const std::string& dataset, DType dtype, const Section& section) {
  Piece piece;
  piece.dataset = dataset;
  piece.dtype = dtype;
  piece.global_shape = section.shape;
  piece.slice_start.assign(section.shape.size(), 0);
  piece.slice_shape = section.shape;
  piece.flat_end = section.numel();
  return piece;
}

/// Where a piece's elements are in the spill file.
struct Spilled {
  Piece piece;
  std::int64_t offset = 0;
};

/// Adds the sections of a tensor to the file, one at a time in memory.
void spill(const FileTensor& tensor, Found source, DType dtype, SpillFile& file, std::vector<Spilled>& spilled) {
  SectionSource part{source, tensor.transposed, 0, 0, 0};
  std::vector<std::byte> section_bytes;
  for (const Section& section : tensor.sections) {
    part.rows = section.rows();
    part.cols = section.cols();
    section_bytes.resize(static_cast<std::size_t>(section.numel() * size_of(dtype)));
    part.read(dtype, section_bytes);
    spilled.push_back({whole_piece(dataset_path(section.name), dtype, section), file.append(section_bytes)});
    part.begin += section.rows();
  }
}

/// Whether two tensors have the same bytes.
bool equal(Found a, Found b) {
  const std::int64_t bytes = a.tensor->end - a.tensor->begin;
  if (a.tensor->type != b.tensor->type || a.tensor->shape != b.tensor->shape) return false;
  std::vector<std::byte> left, right;
  for (std::int64_t at = 0; at < bytes; at += window_bytes) {
    left.resize(static_cast<std::size_t>(std::min(window_bytes, bytes - at)));
    right.resize(left.size());
    a.file->read(*a.tensor, at, left);
    b.file->read(*b.tensor, at, right);
    if (left != right) return false;
  }
  return true;
}

void check_tensor(const FileTensor& expected, Found found, const fs::path& folder) {
  require(bool(found), ExitCode::bad_input, "{} has no tensor {}, which config.json says the model has",
          folder.string(), expected.name);
  const SafeTensor& tensor = *found.tensor;
  require(tensor.shape == expected.shape, ExitCode::bad_input, "{}: {} has shape {}, by config.json it is {}",
          found.file->path(), shown(tensor.name), tensor.shape, expected.shape);
  require(safetensors_dtype(tensor.type).has_value(), ExitCode::bad_input,
          "{}: {} is {}; weights are F64, F32, BF16 or F16: save the model in one of these", found.file->path(),
          shown(tensor.name), tensor.type);
}

}  // namespace

std::string read_huggingface_json(const fs::path& path) {
  // Links are followed: in the Hub's cache all files are links.
  std::error_code error;
  require(fs::is_regular_file(path, error), ExitCode::missing_input, "cannot read {}: {}", path.string(),
          error ? error.message() : "it is not a regular file");
  const std::uintmax_t bytes = fs::file_size(path, error);
  require(!error && bytes <= max_json_bytes, ExitCode::bad_input, "{} has {} bytes; at most {} are read", path.string(),
          bytes, max_json_bytes);
  return read_file(path.string());
}

HuggingFaceFolder::HuggingFaceFolder(const fs::path& folder) : folder_(folder) {
  std::error_code ignored;
  if (fs::exists(folder / single_weight_file, ignored)) {
    files_.emplace_back(folder / single_weight_file);
    return;
  }
  require(fs::exists(folder / weight_index_file, ignored), ExitCode::missing_input,
          "{} has neither {} nor {}; other formats are not read: save the model with safetensors", folder.string(),
          single_weight_file, weight_index_file);
  std::map<std::string, std::string> map;
  for (const std::string& name : read_index(folder / weight_index_file, map)) {
    const SafetensorsFile& file = files_.emplace_back(folder / name);
    for (const SafeTensor& tensor : file.header().tensors) {
      const auto listed = map.find(tensor.name);
      require(listed != map.end() && listed->second == name, ExitCode::bad_input,
              "{} holds {}, which the index does not have there", file.path(), shown(tensor.name));
      map.erase(listed);
    }
  }
  require(map.empty(), ExitCode::bad_input, "{}: the index has {} there, but it is not",
          (folder / (map.empty() ? "" : map.begin()->second)).string(), map.empty() ? "" : shown(map.begin()->first));
}

struct ImportedState::Memory {
  Mapping weights;
  Mapping zeros;
};

ImportedState::ImportedState(const HuggingFaceFolder& folder, const ModelConfig& model, DType masters, DType moments,
                             const fs::path& spill_folder)
    : memory_(std::make_unique<Memory>()) {
  const std::string_view prefix = facts_of(architecture_of(model)).prefix;
  Tensors tensors(folder.path(), folder.files());
  std::vector<std::pair<FileTensor, Found>> sources;
  for (FileTensor& tensor : huggingface_tensors(model)) {
    const Found found = tensors.take(tensor.name, prefix);
    check_tensor(tensor, found, folder.path());
    sources.emplace_back(std::move(tensor), found);
  }
  if (model.tied) {
    const Found head = tensors.take("lm_head.weight", "");
    require(!head || equal(head, sources.front().second), ExitCode::bad_input,
            "{}: config.json ties lm_head.weight to the embedding, but the two differ: set tie_word_embeddings false "
            "there",
            folder.path().string());
  }
  tensors.check_rest();

  SpillFile file(spill_folder);
  std::vector<Spilled> spilled;
  std::int64_t longest = 0;
  for (const auto& [tensor, found] : sources) spill(tensor, found, masters, file, spilled);
  for (const Spilled& one : spilled) longest = std::max(longest, one.piece.size() * size_of(moments));
  memory_->weights = file.map();
  memory_->zeros = Mapping(-1, longest);
  for (const Spilled& one : spilled) {
    for (const char* moment : {"/optimizer/exp_avg", "/optimizer/exp_avg_sq"}) {
      Piece& zeros = pieces_.emplace_back(one.piece);
      zeros.dataset = moment + one.piece.dataset;
      zeros.dtype = moments;
      zeros.data = memory_->zeros.data();
    }
    pieces_.emplace_back(one.piece).data = memory_->weights.data() + one.offset;
  }
}

ImportedState::~ImportedState() = default;

}  // namespace llmtrain
