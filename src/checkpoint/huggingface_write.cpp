// SPDX-License-Identifier: Apache-2.0
/// From a checkpoint's sections to tensors of safetensors files, a window of rows at a time.
#include <algorithm>
#include <numeric>

#include "files.hpp"
#include "llmtrain/base/error.hpp"
#include "llmtrain/base/json.hpp"
#include "llmtrain/base/text.hpp"
#include "llmtrain/checkpoint/geometry.hpp"
#include "llmtrain/checkpoint/huggingface.hpp"
#include "numbers.hpp"

namespace llmtrain {

namespace {

namespace fs = std::filesystem;

constexpr std::int64_t window_elements = std::int64_t{1} << 22;

std::int64_t bytes_of(const FileTensor& tensor, DType dtype) { return checked_volume(tensor.shape) * size_of(dtype); }

std::int64_t bytes_of(std::span<const FileTensor> tensors, DType dtype) {
  return std::accumulate(tensors.begin(), tensors.end(), std::int64_t{0},
                         [&](std::int64_t sum, const FileTensor& tensor) { return sum + bytes_of(tensor, dtype); });
}

/// Element `index` of wide numbers, for messages.
double value_at(DType dtype, std::span<const std::byte> numbers, std::int64_t index) {
  double value = 0;
  const auto one = static_cast<std::size_t>(size_of(dtype));
  convert_numbers(dtype, numbers.subspan(static_cast<std::size_t>(index) * one, one), DType::fp64,
                  std::as_writable_bytes(std::span(&value, 1)));
  return value;
}

/// Reads boxes of sections and converts them.
class SectionReader {
 public:
  SectionReader(const CheckpointReader& reader, DType dtype) : reader_(reader), dtype_(dtype) {}

  /// Rows and columns of a section, row-major, as `dtype`; valid until the next call.
  std::span<const std::byte> box(const Section& section, std::int64_t row, std::int64_t rows, std::int64_t col,
                                 std::int64_t cols) {
    Piece piece;
    piece.dataset = dataset_path(section.name);
    const ManifestTensor* stored = reader_.find(piece.dataset);
    piece.dtype = stored != nullptr ? stored->dtype : DType::fp32;
    piece.global_shape = section.shape;
    piece.slice_start = {row};
    piece.slice_shape = {rows};
    if (section.shape.size() > 1) {
      piece.slice_start.push_back(col);
      piece.slice_shape.push_back(cols);
    }
    piece.flat_end = rows * cols;
    stored_.resize(static_cast<std::size_t>(piece.bytes()));
    piece.data = stored_.data();
    reader_.read(std::span(&piece, 1));
    converted_.resize(static_cast<std::size_t>(rows * cols * size_of(dtype_)));
    const std::int64_t lost = convert_numbers(piece.dtype, stored_, dtype_, converted_);
    require(lost < 0, ExitCode::bad_input,
            "{} holds {}, which {} cannot: write bf16 or fp32 (a weight so large tells that training went wrong)",
            section.name, lost < 0 ? "" : shortest(value_at(piece.dtype, stored_, lost)), name_of(dtype_));
    return converted_;
  }

 private:
  const CheckpointReader& reader_;
  DType dtype_;
  std::vector<std::byte> stored_;
  std::vector<std::byte> converted_;
};

/// Writes rows [first, last) of a tensor that holds its sections as they are.
void append_rows(SectionReader& reader, const FileTensor& tensor, std::int64_t first, std::int64_t last,
                 SafetensorsWriter& file) {
  std::int64_t begin = 0;  // the section's first row in the tensor
  for (const Section& section : tensor.sections) {
    const std::int64_t from = std::max(first, begin), to = std::min(last, begin + section.rows());
    if (from < to) file.append(reader.box(section, from - begin, to - from, 0, section.cols()));
    begin += section.rows();
  }
}

/// The same of a tensor that holds them transposed: its rows are their columns, put side by side in `window`.
void append_columns(SectionReader& reader, const FileTensor& tensor, DType dtype, std::int64_t first, std::int64_t last,
                    std::vector<std::byte>& window, SafetensorsWriter& file) {
  const std::int64_t width = size_of(dtype), rows = last - first, stride = tensor.shape[1];
  window.resize(static_cast<std::size_t>(rows * stride * width));
  std::int64_t begin = 0;  // the section's first column in the tensor
  for (const Section& section : tensor.sections) {
    const std::span<const std::byte> box = reader.box(section, 0, section.rows(), first, rows);
    copy_transposed(width, section.rows(), rows, box.data(), rows, window.data() + begin * width, stride);
    begin += section.rows();
  }
  file.append(window);
}

void append_tensor(SectionReader& reader, const FileTensor& tensor, DType dtype, SafetensorsWriter& file) {
  const std::int64_t rows = tensor.shape[0], cols = checked_volume(tensor.shape) / rows;
  const std::int64_t step = std::max<std::int64_t>(window_elements / cols, 1);
  std::vector<std::byte> window;
  for (std::int64_t first = 0; first < rows; first += step) {
    const std::int64_t last = std::min(rows, first + step);
    if (tensor.transposed) {
      append_columns(reader, tensor, dtype, first, last, window, file);
    } else {
      append_rows(reader, tensor, first, last, file);
    }
  }
}

/// Writes one file and adds it to `written`.
void write_file(const CheckpointReader& reader, std::span<const FileTensor> tensors, DType dtype, const fs::path& path,
                const std::map<std::string, std::string>& metadata, WrittenWeights& written) {
  std::vector<SafeTensor> rows;
  for (const FileTensor& tensor : tensors) {
    rows.push_back({tensor.name, std::string(safetensors_type(dtype)), tensor.shape});
  }
  written.tensors += static_cast<std::int64_t>(rows.size());
  SafetensorsWriter file(path, std::move(rows), metadata);
  SectionReader sections(reader, dtype);
  for (const FileTensor& tensor : tensors) append_tensor(sections, tensor, dtype, file);
  file.close();
  written.files += 1;
  written.bytes += file.size();
}

/// Consecutive tensors of at most so many bytes together, or one.
std::vector<std::span<const FileTensor>> shards_of(std::span<const FileTensor> tensors, DType dtype,
                                                   std::int64_t shard_bytes) {
  std::vector<std::span<const FileTensor>> shards;
  while (!tensors.empty()) {
    std::int64_t bytes = 0;
    std::size_t count = 0;
    do {
      bytes += bytes_of(tensors[count], dtype);
    } while (++count < tensors.size() && bytes + bytes_of(tensors[count], dtype) <= shard_bytes);
    shards.push_back(tensors.first(count));
    tensors = tensors.subspan(count);
  }
  return shards;
}

WrittenWeights write_weights(const CheckpointReader& reader, std::span<const FileTensor> tensors, DType dtype,
                             std::int64_t shard_bytes, const fs::path& folder) {
  const std::map<std::string, std::string> metadata{{"format", "pt"}};  // transformers asks for it
  const std::vector<std::span<const FileTensor>> shards = shards_of(tensors, dtype, shard_bytes);
  WrittenWeights written;
  if (shards.size() == 1) {
    write_file(reader, tensors, dtype, folder / single_weight_file, metadata, written);
    return written;
  }
  std::string map;
  for (std::size_t i = 0; i < shards.size(); ++i) {
    const std::string name = fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, shards.size());
    write_file(reader, shards[i], dtype, folder / name, metadata, written);
    for (const FileTensor& tensor : shards[i]) {
      map += fmt::format("{}\n    {}: {}", map.empty() ? "" : ",", json_string(tensor.name), json_string(name));
    }
  }
  durable_write((folder / weight_index_file).string(),
                fmt::format("{{\n  \"metadata\": {{\"total_size\": {}}},\n  \"weight_map\": {{{}\n  }}\n}}\n",
                            bytes_of(tensors, dtype), map));
  return written;
}

void check_room(const fs::path& folder, std::int64_t bytes) {
  const std::int64_t free = free_bytes(folder);
  require(bytes <= free, ExitCode::io_error, "the weights need {} bytes and {} has {} free: make room", bytes,
          folder.string(), free);
}

}  // namespace

WrittenWeights export_huggingface(const CheckpointReader& reader, const ModelConfig& model,
                                  const HuggingFaceExport& wanted, const fs::path& folder) {
  const std::vector<FileTensor> tensors = huggingface_tensors(model);
  std::error_code error;
  const bool is_free = !fs::exists(folder, error) || (fs::is_directory(folder, error) && fs::is_empty(folder, error));
  require(is_free && !error, ExitCode::cannot_create, "cannot create {}: {}", folder.string(),
          error ? error.message() : "it exists and is not an empty folder; name another one");
  const Aside aside(folder);
  make_directories(aside.path().string());
  check_room(aside.path(), bytes_of(tensors, wanted.dtype));
  durable_write((aside.path() / "config.json").string(), huggingface_config(model, wanted.dtype, wanted.end_token));
  durable_write((aside.path() / "generation_config.json").string(), huggingface_generation_config(wanted.end_token));
  for (const OtherFile& file : wanted.other_files) durable_write((aside.path() / file.name).string(), file.text);
  const WrittenWeights written = write_weights(reader, tensors, wanted.dtype, wanted.shard_bytes, aside.path());
  sync_path(aside.path().string());
  durable_rename(aside.path().string(), folder.string());
  return written;
}

WrittenWeights consolidate(const CheckpointReader& reader, const ModelConfig& model, DType dtype,
                           const fs::path& path) {
  const std::vector<FileTensor> tensors = plain_tensors(model);
  require(!fs::exists(fs::symlink_status(path)), ExitCode::cannot_create, "cannot create {}: it exists", path.string());
  const CheckpointState state = reader.read_state();
  const Aside aside(path);
  check_room(folder_of(path.string()), bytes_of(tensors, dtype));
  WrittenWeights written;
  write_file(reader, tensors, dtype, aside.path(),
             {{"format", "pt"}, {"llmtrain.deck", state.deck}, {"llmtrain.step", std::to_string(state.step)}}, written);
  durable_rename(aside.path().string(), path.string());
  return written;
}

}  // namespace llmtrain
