// SPDX-License-Identifier: Apache-2.0
/// Exchange with Hugging Face: which numbers stand where in the files, and what comes back.
#include <doctest/doctest.h>

#include <array>
#include <set>

#include "checkpoint_fixture.hpp"
#include "huggingface_models.hpp"
#include "llmtrain/base/bf16.hpp"
#include "llmtrain/base/error.hpp"
#include "llmtrain/base/fp16.hpp"
#include "llmtrain/checkpoint/huggingface.hpp"
#include "llmtrain/checkpoint/saver.hpp"

using namespace llmtrain;
using checkpoint_test::Scratch;
using checkpoint_test::slurp;
using checkpoint_test::spill;
using checkpoint_test::state_at;
using namespace llmtrain::huggingface_test;

namespace {

/// The value of element `index` of a section; no two neighbours, rows or sections are alike.
float value(const std::string& section, std::int64_t index) {
  const std::uint64_t mixed = (name_hash(section) ^ static_cast<std::uint64_t>(index)) * 0x9E3779B97F4A7C15U;
  return static_cast<float>(static_cast<std::int64_t>(mixed >> 40) - (1 << 23)) * 0x1p-22F;
}

/// Saves a checkpoint of such values and opens it.
CheckpointReader make_checkpoint(const std::filesystem::path& folder, const ModelConfig& model) {
  std::vector<std::vector<float>> memory;
  std::vector<Piece> pieces;
  for (const FileTensor& tensor : plain_tensors(model)) {
    const Section& section = tensor.sections.front();
    std::vector<float>& values = memory.emplace_back(static_cast<std::size_t>(section.numel()));
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = value(section.name, static_cast<std::int64_t>(i));
    pieces.push_back({dataset_path(section.name), DType::fp32, section.shape,
                      std::vector<std::int64_t>(section.shape.size(), 0), section.shape, 0, section.numel(),
                      values.data()});
  }
  save_checkpoint(MpiComm{}, folder, state_at(3), pieces, {});
  return {MpiComm{}, open_checkpoint(MpiComm{}, folder)};
}

template <class T>
std::vector<T> numbers(const SafetensorsFile& file, const std::string& name) {
  const SafeTensor* tensor = file.header().find(name);
  REQUIRE(tensor != nullptr);
  std::vector<T> values(static_cast<std::size_t>(tensor->end - tensor->begin) / sizeof(T));
  file.read(*tensor, 0, std::as_writable_bytes(std::span(values)));
  return values;
}

std::set<std::string> names(const SafetensorsFile& file) {
  std::set<std::string> found;
  for (const SafeTensor& tensor : file.header().tensors) found.insert(tensor.name);
  return found;
}

/// Every weight of an imported state is what `expected` makes of the value, every moment zero.
template <class Expected>
void check_state(const ImportedState& state, const ModelConfig& model, Expected expected) {
  std::map<std::string, const Piece*> pieces;
  for (const Piece& piece : state.pieces()) pieces[piece.dataset] = &piece;
  CHECK(pieces.size() == state.pieces().size());
  CHECK(pieces.size() == 3 * plain_tensors(model).size());
  for (const FileTensor& tensor : plain_tensors(model)) {
    const Section& section = tensor.sections.front();
    CAPTURE(section.name);
    for (const char* moment : {"", "/optimizer/exp_avg", "/optimizer/exp_avg_sq"}) {
      const Piece* piece = pieces[moment + dataset_path(section.name)];
      REQUIRE(piece != nullptr);
      REQUIRE(piece->global_shape == section.shape);
      std::int64_t wrong = 0;
      for (std::int64_t i = 0; i < section.numel(); ++i) {
        const float found = static_cast<const float*>(piece->data)[i];
        wrong += found != (*moment == '\0' ? expected(value(section.name, i)) : 0.0F);
      }
      CHECK(wrong == 0);
    }
  }
}

void round_trip(const ModelConfig& model, DType dtype, std::int64_t shard_bytes, float (*rounded)(float)) {
  const Scratch scratch;
  const CheckpointReader reader = make_checkpoint(scratch.path() / "run", model);
  HuggingFaceExport wanted;
  wanted.dtype = dtype;
  wanted.shard_bytes = shard_bytes;
  export_huggingface(reader, model, wanted, scratch.path() / "hf");
  const HuggingFaceFolder folder(scratch.path() / "hf");
  check_state(ImportedState(folder, model, DType::fp32, DType::fp32, scratch.path()), model, rounded);
}

}  // namespace

TEST_CASE("huggingface: a GPT's tensors: names, fused q, k, v, transposed matrices") {
  const Scratch scratch;
  ModelConfig model = gpt();
  model.layers = 1;
  const CheckpointReader reader = make_checkpoint(scratch.path() / "run", model);
  HuggingFaceExport wanted;
  wanted.dtype = DType::fp32;
  const WrittenWeights written = export_huggingface(reader, model, wanted, scratch.path() / "hf");
  CHECK(written.files == 1);
  CHECK(written.tensors == 16);
  const SafetensorsFile file(scratch.path() / "hf" / "model.safetensors");
  std::set<std::string> expected{"transformer.wte.weight", "transformer.wpe.weight", "transformer.ln_f.weight",
                                 "transformer.ln_f.bias"};
  for (const char* layer : {"ln_1", "ln_2", "attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj"}) {
    expected.insert("transformer.h.0." + std::string(layer) + ".weight");
    expected.insert("transformer.h.0." + std::string(layer) + ".bias");
  }
  CHECK(names(file) == expected);  // tied: no lm_head.weight
  CHECK(file.header().metadata.at("format") == "pt");

  const std::string at = "transformer.h.0.";
  const auto qkv = numbers<float>(file, at + "attn.c_attn.weight");  // [hidden, 3 hidden]
  const auto qkv_bias = numbers<float>(file, at + "attn.c_attn.bias");
  const auto up = numbers<float>(file, at + "mlp.c_fc.weight");      // [hidden, ffn]
  const auto down = numbers<float>(file, at + "mlp.c_proj.weight");  // [ffn, hidden]
  REQUIRE(qkv.size() == 12 * 36);
  REQUIRE(up.size() == 120);
  for (std::size_t in = 0; in < 12; ++in) {
    for (std::size_t out = 0; out < 36; ++out) {
      const std::string part = std::array{"q", "k", "v"}[out / 12];
      const auto index = static_cast<std::int64_t>(out % 12 * 12 + in);
      REQUIRE(qkv[in * 36 + out] == value(at + "attn." + part + "_proj.weight", index));
      REQUIRE(qkv_bias[out] == value(at + "attn." + part + "_proj.bias", static_cast<std::int64_t>(out % 12)));
    }
    for (std::size_t ffn = 0; ffn < 10; ++ffn) {
      REQUIRE(up[in * 10 + ffn] == value(at + "mlp.c_fc.weight", static_cast<std::int64_t>(ffn * 12 + in)));
      REQUIRE(down[ffn * 12 + in] == value(at + "mlp.c_proj.weight", static_cast<std::int64_t>(in * 10 + ffn)));
    }
  }
  CHECK(numbers<float>(file, "transformer.wte.weight")[25] == value("transformer.wte.weight", 25));  // as it is
  CHECK(file.header().find("transformer.wte.weight")->shape == std::vector<std::int64_t>{7, 12});
}

TEST_CASE("huggingface: import of an export is bit-equal, or the rounded values") {
  const auto same = [](float x) { return x; };
  const auto bf16 = [](float x) { return static_cast<float>(Bf16(x)); };
  const auto fp16 = [](float x) { return static_cast<float>(Fp16(x)); };
  ModelConfig untied = gpt();
  untied.tied = false;
  ModelConfig qwen2 = llama();
  qwen2.qkv_bias = qwen2.tied = true;
  ModelConfig qwen3 = llama();
  qwen3.qk_norm = true;
  for (const ModelConfig& model : {llama(), gpt(), untied, qwen2, qwen3}) {
    for (const std::int64_t shard_bytes : {std::int64_t{1} << 40, std::int64_t{1000}, std::int64_t{1}}) {
      round_trip(model, DType::fp32, shard_bytes, same);
    }
    round_trip(model, DType::bf16, 1000, bf16);
    round_trip(model, DType::fp16, 1000, fp16);
  }
}

TEST_CASE("huggingface: matrices of more than a window") {
  ModelConfig model = gpt();
  model.layers = 1;
  model.hidden = 1000;
  model.head_dim = 250;
  model.ffn = 5000;
  round_trip(model, DType::bf16, std::int64_t{1} << 40, [](float x) { return static_cast<float>(Bf16(x)); });
}

TEST_CASE("huggingface: shards and their index") {
  const Scratch scratch;
  const CheckpointReader reader = make_checkpoint(scratch.path() / "run", llama());
  HuggingFaceExport wanted;
  wanted.shard_bytes = 600;
  const WrittenWeights written = export_huggingface(reader, llama(), wanted, scratch.path() / "hf");
  CHECK(written.files > 3);
  const std::string index = slurp(scratch.path() / "hf" / "model.safetensors.index.json");
  std::int64_t bytes = 0;
  for (std::int64_t i = 1; i <= written.files; ++i) {
    const std::string name = fmt::format("model-{:05}-of-{:05}.safetensors", i, written.files);
    const SafetensorsFile file(scratch.path() / "hf" / name);
    std::int64_t here = 0;
    for (const SafeTensor& tensor : file.header().tensors) {
      here += tensor.end - tensor.begin;
      CHECK(tensor.type == "BF16");
      CHECK(index.find("\"" + tensor.name + "\": \"" + name + "\"") != std::string::npos);
    }
    CHECK((here <= 600 || file.header().tensors.size() == 1));
    bytes += here;
  }
  CHECK(index.find(fmt::format("\"total_size\": {}", bytes)) != std::string::npos);
  CHECK(!std::filesystem::exists(scratch.path() / "hf" / "model.safetensors"));
}

TEST_CASE("huggingface: a number that the type cannot hold is refused by name") {
  const Scratch scratch;
  const ModelConfig model = llama();
  std::vector<std::vector<float>> memory;
  std::vector<Piece> pieces;
  for (const FileTensor& tensor : plain_tensors(model)) {
    const Section& section = tensor.sections.front();
    std::vector<float>& values = memory.emplace_back(static_cast<std::size_t>(section.numel()), 65519.0F);
    if (section.name == "model.layers.1.mlp.up_proj.weight") values[17] = -65520.0F;
    pieces.push_back({dataset_path(section.name), DType::fp32, section.shape,
                      std::vector<std::int64_t>(section.shape.size(), 0), section.shape, 0, section.numel(),
                      values.data()});
  }
  save_checkpoint(MpiComm{}, scratch.path() / "run", state_at(3), pieces, {});
  const CheckpointReader reader(MpiComm{}, open_checkpoint(MpiComm{}, scratch.path() / "run"));
  HuggingFaceExport wanted;
  wanted.dtype = DType::fp16;
  const auto write = [&] { export_huggingface(reader, model, wanted, scratch.path() / "hf"); };
  CHECK(code_of(write, "model.layers.1.mlp.up_proj.weight holds -65520, which fp16 cannot") == ExitCode::bad_input);
  CHECK(!std::filesystem::exists(scratch.path() / "hf"));  // nothing of it is left
  CHECK(std::distance(std::filesystem::directory_iterator(scratch.path()), {}) == 1);
  wanted.dtype = DType::bf16;
  write();
  CHECK(code_of(write, "not an empty folder") == ExitCode::cannot_create);
}

TEST_CASE("huggingface: models that no architecture holds are refused by name") {
  ModelConfig both = llama();
  both.qkv_bias = both.qk_norm = true;
  ModelConfig grouped = gpt();
  grouped.kv_heads = 2;
  ModelConfig wide = gpt();
  wide.head_dim = 5;
  ModelConfig odd = llama();
  odd.hidden = 13;
  for (const auto& [model, words] : {std::pair{both, "qkv_bias with qk_norm"}, std::pair{grouped, "kv_heads"},
                                     std::pair{wide, "head_dim 5"}, std::pair{odd, "hidden is 13 and heads 4"}}) {
    CHECK(code_of([&] { huggingface_tensors(model); }, words) == ExitCode::checkpoint_incompatible);
    CHECK(plain_tensors(model).size() > 10);
  }
}

TEST_CASE("huggingface: consolidation holds every section under its own name") {
  const Scratch scratch;
  ModelConfig model = gpt();
  model.kv_heads = 2;  // no architecture holds it
  const CheckpointReader reader = make_checkpoint(scratch.path() / "run", model);
  const auto path = scratch.path() / "weights.safetensors";
  consolidate(reader, model, DType::bf16, path);
  const SafetensorsFile file(path);
  CHECK(file.header().metadata.at("llmtrain.deck") == state_at(3).deck);
  CHECK(file.header().metadata.at("llmtrain.step") == "3");
  CHECK(names(file).size() == plain_tensors(model).size());
  const std::string name = "transformer.h.1.attn.k_proj.weight";
  const auto found = numbers<Bf16>(file, name);
  REQUIRE(found.size() == 6 * 12);
  for (std::size_t i = 0; i < found.size(); ++i) {
    REQUIRE(found[i].bits == Bf16(value(name, static_cast<std::int64_t>(i))).bits);
  }
  CHECK(code_of([&] { consolidate(reader, model, DType::bf16, path); }, "it exists") == ExitCode::cannot_create);
}

TEST_CASE("huggingface: an index may name files of its folder only, and must be right") {
  const Scratch scratch;
  const CheckpointReader reader = make_checkpoint(scratch.path() / "run", llama());
  HuggingFaceExport wanted;
  wanted.shard_bytes = 2000;
  const auto folder = scratch.path() / "hf";
  export_huggingface(reader, llama(), wanted, folder);
  const auto path = folder / "model.safetensors.index.json";
  const std::string good = slurp(path);
  const auto open_with = [&](const std::string& from, const std::string& to, const std::string& words) {
    std::string text = good;
    REQUIRE(text.find(from) != std::string::npos);
    spill(path, text.replace(text.find(from), from.size(), to));
    return code_of([&] { HuggingFaceFolder opened(folder); }, words);
  };
  const std::string first = "\"model-00001-of-";
  for (const char* foreign : {"\"../model-00001-of-", "\"/model-00001-of-", "\".model-00001-of-", "\"a/model-00001-of-",
                              "\"model\\u0000-00001-of-"}) {
    CHECK(open_with(first, foreign, "is not in a safetensors file of the same folder") == ExitCode::bad_input);
  }
  CHECK(open_with(first, "\"nodel-00001-of-", "which the index does not have there") == ExitCode::bad_input);
  CHECK(open_with(first, "1, \"x\": \"", "is not in a safetensors file") == ExitCode::bad_input);
  CHECK(open_with("\"model.norm.weight\"", "\"model.nurm.weight\"", "which the index does not have there") ==
        ExitCode::bad_input);
  CHECK(open_with("\"weight_map\": {", "\"weight_map\": {\"new\": \"model-00001-of-00001.safetensors\", ",
                  "cannot open") == ExitCode::missing_input);
  CHECK(open_with("\"weight_map\"", "\"map\"", "with a weight_map") == ExitCode::bad_input);
  spill(path, good);
  CHECK(HuggingFaceFolder(folder).files().size() > 1);
  std::filesystem::remove(path);
  CHECK(code_of([&] { HuggingFaceFolder opened(folder); }, "has neither") == ExitCode::missing_input);
}
