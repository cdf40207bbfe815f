// SPDX-License-Identifier: Apache-2.0
/// Megatron-LM's model arguments: which family they describe, and what of them the family lacks.
#include <fmt/format.h>

#include "llmtrain/base/error.hpp"
#include "megatron_arguments.hpp"

namespace llmtrain::megatron {
namespace {

/// What tells Megatron's Llama-like models from its GPT-like ones.
struct Traits {
  explicit Traits(const Arguments& args)
      : rope(args.given("use-rotary-position-embeddings") ||
             args.text("position-embedding-type", "learned_absolute") == "rope"),
        rms_norm(args.text("normalization", "LayerNorm") == "RMSNorm"),
        swiglu(args.given("swiglu")),
        biases(!args.given("disable-bias-linear")) {}
  bool rope, rms_norm, swiglu, biases;

  bool llama() const { return rope + rms_norm + swiglu >= 2; }
};

void lack_of_traits(const Translation& t, const Traits& traits) {
  const Arguments& args = t.args;
  const std::string_view family = traits.llama() ? "llama" : "gpt";
  const auto check = [&](bool asked, bool has, std::string_view name, std::string_view what) {
    if (asked != has) t.lacks(args.shown(name), fmt::format("{}; model.family {} cannot", what, family));
  };
  check(traits.rms_norm, traits.llama(), "normalization", traits.rms_norm ? "RMSNorm" : "LayerNorm");
  check(traits.swiglu, traits.llama(), "swiglu", traits.swiglu ? "SwiGLU" : "an MLP without a gate (GeLU)");
  const std::string position = args.text("position-embedding-type", "learned_absolute");
  check(traits.rope, traits.llama(), args.which({"use-rotary-position-embeddings", "position-embedding-type"}),
        traits.rope ? "rotary positions" : position + " positions");
  if (!traits.rope && position != "learned_absolute" && !traits.llama()) {
    t.lacks(args.shown("position-embedding-type"), position + " positions; the deck has learned ones");
  }
  if (traits.llama() && traits.biases) {
    t.lacks(args.shown("disable-bias-linear"),
            "biases on all linear layers; model.family llama has those of q, k and v only (model.qkv_bias true)");
  }
  if (!traits.llama() && !traits.biases) {
    t.lacks(args.shown("disable-bias-linear"), "no biases; model.family gpt has them on all linear layers");
  }
}

void translate_activation(const Translation& t, const Traits& traits) {
  if (traits.llama()) return t.draft.set("model.activation", std::string("silu"), t.args.shown("swiglu"));
  // Megatron's fused bias and GeLU is the tanh form; without biases or fusion it is PyTorch's exact one.
  const bool exact = !t.args.given("openai-gelu") && (t.args.given("no-bias-gelu-fusion") || !traits.biases);
  const std::string_view name =
      t.args.which({t.args.given("openai-gelu") ? "openai-gelu" : "swiglu", "no-bias-gelu-fusion"});
  t.draft.set("model.activation", std::string(exact ? "gelu" : "gelu_tanh"),
              t.args.shown(name) + (name == "swiglu" ? ": its fused GeLU is the tanh form" : ""));
}

void translate_heads(const Translation& t, bool llama) {
  const Arguments& args = t.args;
  const std::int64_t heads = args.integer("num-attention-heads", 0);
  if (args.given("group-query-attention")) {
    t.draft.set("model.kv_heads", args.integer("num-query-groups", 1), args.shown("num-query-groups"));
  } else if (heads > 0) {
    t.draft.set("model.kv_heads", heads, args.shown("group-query-attention") + ": as many as heads");
    if (args.given("num-query-groups")) {
      t.remark(args.shown("num-query-groups"),
               "without --group-query-attention Megatron does not look at it: every head has its own K and V. Set "
               "model.kv_heads if you meant groups");
    }
  }
  if (args.given("kv-channels"))
    t.draft.set("model.head_dim", args.integer("kv-channels", 0), args.shown("kv-channels"));
  if (!args.given("qk-layernorm")) return;
  const bool rms = args.text("normalization", "LayerNorm") == "RMSNorm";
  if (llama) t.draft.set("model.qk_norm", true, args.shown("qk-layernorm"));
  if (!llama || !rms)
    t.lacks(args.shown("qk-layernorm"),
            "LayerNorm on queries and keys; llmtrain has RMSNorm there, in "
            "family llama");
}

void translate_vocabulary(const Translation& t) {
  const Arguments& args = t.args;
  const bool null_tokenizer = args.text("tokenizer-type", "").starts_with("Null");
  if (args.given("vocab-size")) {
    t.draft.set("model.vocab", args.integer("vocab-size", 0) + (null_tokenizer ? 1 : 0),
                args.shown("vocab-size") + (null_tokenizer ? " and one for the end of document" : ""));
  } else if (args.given("padded-vocab-size")) {
    t.draft.set("model.vocab", args.integer("padded-vocab-size", 0), args.shown("padded-vocab-size"));
  }
}

std::int64_t ffn_of(const Arguments& args) {
  const std::int64_t hidden = args.integer("hidden-size", 0);
  return args.given("swiglu") ? hidden * 8 / 3 / 64 * 64 : 4 * hidden;
}

}  // namespace

void translate_positions(const Translation& t, bool rope) {
  const Arguments& args = t.args;
  const std::string_view length = args.which({"seq-length", "encoder-seq-length"});
  const std::int64_t tokens = args.integer(length, 0);
  if (tokens > 0) t.draft.set("model.seq_len", tokens, args.shown(length));
  if (tokens == 0) t.open("--seq-length", "the length of a sequence (model.seq_len)");
  const std::int64_t rows = args.integer("max-position-embeddings", 0);
  if (!rope && rows > tokens) {
    t.lacks(args.shown("max-position-embeddings"),
            fmt::format("a table of {} positions for sequences of {}; llmtrain's has a row for each that occurs", rows,
                        tokens));
  }
  t.draft.set("model.positions", std::string(rope ? "rope" : "learned"),
              args.shown(args.which({"position-embedding-type", "use-rotary-position-embeddings"})));
  if (!rope) return;
  t.draft.set("model.rope.theta", args.real("rotary-base", 10000), args.shown("rotary-base"));
  if (!args.given("use-rope-scaling")) return;
  t.draft.set("model.rope.scaling.factor", args.real("rope-scaling-factor", 8), args.shown("rope-scaling-factor"));
  const std::string fixed = "fixed in Megatron (--use-rope-scaling)";
  t.draft.set("model.rope.scaling.low_freq_factor", 1.0, fixed);
  t.draft.set("model.rope.scaling.high_freq_factor", 4.0, fixed);
  t.draft.set("model.rope.scaling.original_max_position", std::int64_t{8192}, fixed);
}

void translate_model(Translation& t) {
  const Arguments& args = t.args;
  const Traits traits(args);
  t.draft.set(
      "model.family", std::string(traits.llama() ? "llama" : "gpt"),
      fmt::format("{} of RMSNorm, SwiGLU and rope are asked for", traits.rms_norm + traits.swiglu + traits.rope));
  lack_of_traits(t, traits);
  const std::string_view layers = args.which({"num-layers", "encoder-num-layers"});
  t.layers = args.integer(layers, 0);
  if (t.layers > 0) t.draft.set("model.layers", t.layers, args.shown(layers));
  const std::initializer_list<std::pair<std::string_view, std::string_view>> needed{
      {layers, "the number of layers (model.layers)"},
      {"hidden-size", "the width (model.hidden)"},
      {"num-attention-heads", "the number of heads (model.heads)"}};
  for (const auto& [name, what] : needed) {
    if (!args.given(name)) t.open(fmt::format("--{}", name), std::string(what));
  }
  translate_heads(t, traits.llama());
  if (args.given("ffn-hidden-size")) {
    t.draft.set("model.ffn", args.integer("ffn-hidden-size", 0), args.shown("ffn-hidden-size"));
  } else if (args.given("hidden-size")) {
    t.draft.set("model.ffn", ffn_of(args),
                args.shown("ffn-hidden-size") + (traits.swiglu ? ": 8/3 hidden in 64s" : ": 4 hidden"));
  }
  translate_vocabulary(t);
  if (args.given("layernorm-epsilon")) {
    t.draft.set("model.norm_eps", args.real("layernorm-epsilon", 0), args.shown("layernorm-epsilon"));
  }
  const std::string_view untie = "untie-embeddings-and-output-weights";
  t.draft.set("model.tied", !args.given(untie), args.shown(untie));
  const bool qkv_bias = traits.biases || args.given("add-qkv-bias") || !traits.llama();
  t.draft.set("model.qkv_bias", qkv_bias,
              args.shown(args.given("add-qkv-bias") ? "add-qkv-bias" : "disable-bias-linear"));
  translate_activation(t, traits);
  translate_positions(t, traits.llama());
  const double dropout = args.real("attention-dropout", 0.1);
  if (dropout != 0) {
    t.lacks(
        args.shown("attention-dropout"),
        fmt::format("dropout of {} on attention probabilities; llmtrain has it on the embedding and the two residual "
                    "branches only (model.dropout)",
                    dropout));
  }
}

}  // namespace llmtrain::megatron
