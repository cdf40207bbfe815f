// SPDX-License-Identifier: Apache-2.0
/// Models as Hugging Face stores them: a folder with config.json and safetensors files. What its architectures call
/// and fuse, and how they store matrices, is known here alone.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "llmtrain/base/dtype.hpp"
#include "llmtrain/checkpoint/loader.hpp"
#include "llmtrain/checkpoint/piece.hpp"
#include "llmtrain/checkpoint/safetensors.hpp"
#include "llmtrain/config/deck.hpp"
#include "llmtrain/params/param_table.hpp"

namespace llmtrain {

inline constexpr const char* single_weight_file = "model.safetensors";
inline constexpr const char* weight_index_file = "model.safetensors.index.json";

/// One tensor of a file, made of sections of ours.
struct FileTensor {
  std::string name;
  std::vector<std::int64_t> shape;  ///< in the file
  bool transposed = false;          ///< [in, out] in the file, [out, in] here
  std::vector<Section> sections;    ///< one after the other along their rows
};

/// The tensors of an exported model, in the order of its layers; `model` must be resolved. Throws
/// Error(checkpoint_incompatible) naming what no architecture of Hugging Face holds.
std::vector<FileTensor> huggingface_tensors(const ModelConfig& model);

/// The sections themselves, each a tensor under its own name: for any model.
std::vector<FileTensor> plain_tensors(const ModelConfig& model);

/// Text of config.json, for transformers 4 and 5, and of generation_config.json. `end_token`: ends a document.
std::string huggingface_config(const ModelConfig& model, DType dtype, std::optional<std::int32_t> end_token);
std::string huggingface_generation_config(std::optional<std::int32_t> end_token);

/// The model that a config.json describes, resolved but for vocab_multiple. Throws Error(bad_input) for what is missing
/// or of a wrong type, Error(checkpoint_incompatible) naming what llmtrain's families do not have.
ModelConfig read_huggingface_config(std::string_view json, std::string_view where);

/// What keeps `model` from holding the weights of `stored`, one line a key; sequence length, dropout and initial values
/// are free where the weights do not depend on them.
std::vector<std::string> model_differences(const ModelConfig& stored, const ModelConfig& model);

/// A file beside the weights.
struct OtherFile {
  std::string name;
  std::string text;
};

/// What an export is to be.
struct HuggingFaceExport {
  DType dtype = DType::bf16;
  std::int64_t shard_bytes = 5'000'000'000;  ///< at most so many a file; a larger tensor has a file of its own
  std::optional<std::int32_t> end_token;     ///< ends a document
  std::vector<OtherFile> other_files;        ///< the tokenizer's
};

/// Files of weights and their bytes together.
struct WrittenWeights {
  std::int64_t files = 0;
  std::int64_t tensors = 0;
  std::int64_t bytes = 0;
};

/// Makes `folder` with config.json, generation_config.json and the weights in one model.safetensors, or in shards with
/// their index; it appears whole or not at all, and must not exist or be empty. Holds a window of one tensor in memory.
/// Throws Error(checkpoint_incompatible) as huggingface_tensors, Error(bad_input) naming a tensor with a number that
/// `dtype` cannot hold, cannot_create, io_error.
WrittenWeights export_huggingface(const CheckpointReader& reader, const ModelConfig& model,
                                  const HuggingFaceExport& wanted, const std::filesystem::path& folder);

/// Writes the sections of any model, under their own names, into one safetensors file that must not exist; the deck and
/// the step are in its metadata. Throws as export_huggingface.
WrittenWeights consolidate(const CheckpointReader& reader, const ModelConfig& model, DType dtype,
                           const std::filesystem::path& path);

/// A JSON file of a folder that somebody else made. Throws Error(missing_input), Error(bad_input) if it is too large.
std::string read_huggingface_json(const std::filesystem::path& path);

/// The weights of a folder: model.safetensors, or the files that model.safetensors.index.json lists.
class HuggingFaceFolder {
 public:
  /// Opens all files. Throws Error(missing_input) and Error(bad_input).
  explicit HuggingFaceFolder(const std::filesystem::path& folder);

  const std::filesystem::path& path() const { return folder_; }
  std::span<const SafetensorsFile> files() const { return files_; }

 private:
  std::filesystem::path folder_;
  std::vector<SafetensorsFile> files_;
};

/// The state of a run that starts from a folder's weights, as pieces for a save: master weights, and zeros for their
/// moments. The weights lie in a file without a name in `spill_folder`, so they need not fit in memory.
class ImportedState {
 public:
  /// Throws Error(bad_input) naming a tensor that is missing, unknown, or of another shape or type than the model's.
  ImportedState(const HuggingFaceFolder& folder, const ModelConfig& model, DType masters, DType moments,
                const std::filesystem::path& spill_folder);
  ~ImportedState();

  std::span<const Piece> pieces() const { return pieces_; }

 private:
  struct Memory;
  std::unique_ptr<Memory> memory_;
  std::vector<Piece> pieces_;
};

}  // namespace llmtrain
