// SPDX-License-Identifier: Apache-2.0
/// Slices, chunks and boxes: every element of every section has exactly one owner in any layout.
#include "llmtrain/params/ownership.hpp"

#include <doctest/doctest.h>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <vector>

#include "llmtrain/model/param_table.hpp"

using namespace llmtrain;

namespace {

ModelConfig small_model(bool tied) {
  ModelConfig config;
  config.layers = 2;
  config.hidden = 24;
  config.heads = 6;
  config.kv_heads = 3;
  config.head_dim = 4;
  config.ffn = 30;
  config.vocab = 37;
  config.vocab_multiple = 4;
  config.tied = tied;
  return config;
}

ModelConfig small_gpt() {
  ModelConfig config = small_model(true);
  config.family = Family::gpt;
  config.positions = Positions::learned;
  config.activation = Activation::gelu_tanh;
  config.kv_heads = 6;
  config.qkv_bias = true;
  return config;
}

std::vector<ChunkPlace> places_of(int shards, int replicas) {
  std::vector<ChunkPlace> places;
  for (int shard = 0; shard < shards; ++shard) {
    for (int replica = 0; replica < replicas; ++replica) places.push_back({shard, replica});
  }
  return places;
}

using Owners = std::map<std::string, std::vector<int>>;  // by section: how many own each element

/// Counts the elements of one tensor rank's layout that are counted at `place`; returns how many.
std::int64_t count_owned(const StorageSpec& storage, const StorageLayout& layout, ChunkPlace place, Owners& owners) {
  std::int64_t counted = 0;
  for (const SectionRange& range : counted_ranges(storage, layout, place)) {
    const SectionSlice& slice = layout.slices[static_cast<std::size_t>(range.section)];
    CHECK(section_ranges(layout, place.shard * layout.chunk + range.offset, layout.padded).front().flat_begin ==
          range.flat_begin);
    counted += range.flat_end - range.flat_begin;
    const Section& section = storage.sections[static_cast<std::size_t>(range.section)];
    for (const Box& box : boxes_of(slice.cols, range.flat_begin, range.flat_end)) {
      for (std::int64_t i = 0; i < box.rows * box.cols; ++i) {
        const std::int64_t row = slice.first_row + box.row + i / box.cols;
        const std::int64_t col = slice.first_col + box.col + i % box.cols;
        ++owners[section.name][static_cast<std::size_t>(row * section.cols() + col)];
      }
    }
  }
  return counted;
}

/// Every element of every section has exactly one owner among the ranks of two replicas.
void check_owners(const ModelConfig& config, int tensor, int shards) {
  const ParamTable table = make_param_table(config, tensor);
  Owners owners;
  for (const StorageSpec& storage : table.storages) {
    for (const Section& section : storage.sections) {
      owners[section.name].assign(static_cast<std::size_t>(section.numel()), 0);
    }
    for (int t = 0; t < tensor; ++t) {
      const StorageLayout layout = layout_of(storage, t, tensor, shards);
      CHECK(layout.padded % (shards * chunk_multiple) == 0);
      CHECK(layout.padded >= layout.numel());
      CHECK(layout.padded - layout.numel() < shards * chunk_multiple);
      for (const ChunkPlace& place : places_of(shards, 2)) {
        const std::int64_t counted = count_owned(storage, layout, place, owners);
        std::int64_t in_spans = 0, end = -1;
        for (const Span& span : counted_spans(storage, layout, place)) {
          CHECK(span.begin > end);  // in order, and what touches is one span
          end = span.begin + span.count;
          in_spans += span.count;
        }
        CHECK(end <= layout.chunk);
        CHECK(in_spans == counted);
      }
    }
  }
  for (const auto& [name, counts] : owners) {
    CAPTURE(name);
    CAPTURE(tensor);
    CAPTURE(shards);
    CHECK(std::count(counts.begin(), counts.end(), 1) == static_cast<std::ptrdiff_t>(counts.size()));
  }
}

}  // namespace

TEST_CASE("every element of every section is owned once, for any tensor and shard size") {
  for (const int shards : {1, 2, 3, 5}) {
    for (const int tensor : {1, 3, 6}) check_owners(small_model(false), tensor, shards);  // 3 kv heads
    for (const int tensor : {1, 2, 3, 6}) check_owners(small_gpt(), tensor, shards);
  }
}

TEST_CASE("of a tied weight that two stages hold, the first stage's copy counts") {
  StorageSpec embedding = make_param_table(small_model(true), 2).storages[0];
  const StorageLayout layout = layout_of(embedding, 1, 2, 3);
  embedding.tied = TiedCopy::last;
  for (const ChunkPlace& place : places_of(3, 1)) CHECK(counted_ranges(embedding, layout, place).empty());
  embedding.tied = TiedCopy::first;
  std::int64_t counted = 0;
  for (const ChunkPlace& place : places_of(3, 1)) {
    for (const Span& span : counted_spans(embedding, layout, place)) counted += span.count;
  }
  CHECK(counted == layout.slices[0].numel());
}

TEST_CASE("gradients are partial where several tensor ranks hold a section and each sees a part of its uses") {
  Section section;
  section.name = "w";
  section.shape = {6};
  const auto partial = [&](int copies, GradientOver over, bool sequence) {
    section.gradient_over = over;
    SectionSlice slice;
    slice.copies = copies;
    return has_partial_gradient(section, slice, sequence);
  };
  for (const bool sequence : {false, true}) {
    CHECK(!partial(1, GradientOver::heads, sequence));
    CHECK(!partial(1, GradientOver::tokens, sequence));
    CHECK(!partial(2, GradientOver::whole, sequence));
    CHECK(partial(2, GradientOver::heads, sequence));
    CHECK(partial(2, GradientOver::tokens, sequence) == sequence);
  }
}

TEST_CASE("k and v are shared by several tensor ranks when those outnumber the kv heads") {
  const ParamTable table = make_param_table(small_model(false), 6);
  const StorageSpec& qkv = table.storages[2];
  REQUIRE(qkv.name == "layers.0.qkv");
  const StorageLayout layout = layout_of(qkv, 3, 6, 1);
  CHECK(layout.slices[0].rows == 4);
  CHECK(layout.slices[0].copies == 1);
  CHECK(layout.slices[1].first_row == 4);  // ranks 2 and 3 hold kv head 1
  CHECK(layout.slices[1].copies == 2);
  CHECK(layout.slices[1].copy == 1);
}

TEST_CASE("rows of the GPT family: names, storages of several vectors, decay and initial values") {
  const ModelConfig config = small_gpt();
  const ParamTable table = make_param_table(config, 3);
  std::map<std::string, const Section*> sections;
  for (const StorageSpec& storage : table.storages) {
    for (const Section& section : storage.sections) {
      CHECK(sections.emplace(section.name, &section).second);
      CHECK(storage.decay == (section.shape.size() == 2));
    }
  }
  for (const char* name : {"transformer.wte.weight", "transformer.wpe.weight", "transformer.ln_f.bias"}) {
    CHECK(sections.contains(name));
  }
  for (const char* part :
       {"ln_1", "attn.q_proj", "attn.k_proj", "attn.v_proj", "attn.o_proj", "ln_2", "mlp.c_fc", "mlp.c_proj"}) {
    for (const char* kind : {"weight", "bias"}) {
      const auto found = sections.find(fmt::format("transformer.h.0.{}.{}", part, kind));
      REQUIRE(found != sections.end());
      if (std::string_view(kind) == "bias") CHECK(found->second->init.value == 0);
    }
  }
  const double inner = sections.at("transformer.h.0.mlp.c_fc.weight")->init.value;
  CHECK(inner == config.init_std);
  CHECK(sections.at("transformer.wpe.weight")->init.value == inner);
  const double residual = inner / std::sqrt(2.0 * static_cast<double>(config.layers));
  CHECK(sections.at("transformer.h.0.mlp.c_proj.weight")->init.value == residual);
  CHECK(sections.at("transformer.h.0.attn.o_proj.weight")->init.value == residual);
  CHECK(sections.at("transformer.h.0.ln_2.weight")->init.value == 1);

  const auto named = [&](std::string_view name) {
    return *std::find_if(table.storages.begin(), table.storages.end(),
                         [&](const StorageSpec& s) { return s.name == name; });
  };
  const StorageLayout bias = layout_of(named("layers.0.qkv_bias"), 1, 3, 1);
  CHECK(bias.cols == 1);
  CHECK(bias.rows == (config.heads + 2 * config.kv_heads) * config.head_dim / 3);  // cut as the rows of qkv
  CHECK(bias.slices[0].copies == 1);
  const StorageLayout norm = layout_of(named("layers.0.norm_1"), 1, 3, 1);
  CHECK(norm.rows == 2 * config.hidden);
  CHECK(norm.slices[1].begin == config.hidden);
  CHECK(norm.slices[1].copies == 3);
}

TEST_CASE("a tensor rank may own no true row of the vocabulary") {
  ModelConfig config = small_model(false);
  config.vocab = 5;
  const ParamTable table = make_param_table(config, 4);
  const StorageLayout last = layout_of(table.storages[0], 3, 4, 2);
  CHECK(last.slices[0].rows == 0);
  CHECK(last.slices[0].stored_rows == 4);
  CHECK(section_ranges(last, 0, last.padded).empty());
}

TEST_CASE("a flat range of a matrix is at most three boxes that cover it in order") {
  for (std::int64_t begin = 0; begin < 30; ++begin) {
    for (std::int64_t end = begin; end <= 30; ++end) {
      const std::vector<Box> boxes = boxes_of(7, begin, end);
      CHECK(boxes.size() <= 3);
      std::int64_t at = begin;
      for (const Box& box : boxes) {
        CHECK(box.offset == at - begin);
        CHECK(box.row * 7 + box.col == at);
        CHECK((box.rows == 1 || (box.col == 0 && box.cols == 7)));
        at += box.rows * box.cols;
      }
      CHECK(at == end);
    }
  }
}

TEST_CASE("a tied weight is one storage in two leases and counts once") {
  const ParamTable tied = make_param_table(small_model(true), 1);
  const ParamTable untied = make_param_table(small_model(false), 1);
  CHECK(tied.leases.front().storages[0] == tied.leases.back().storages[1]);
  CHECK(untied.parameters() - tied.parameters() == 37 * 24);
  CHECK(dataset_path(tied.storages[1].sections[0].name) == "/model/layers/0/input_layernorm/weight");
}
