// SPDX-License-Identifier: Apache-2.0
/// Megatron-LM's arguments of the model and of precision, one row each.
#include "megatron_tables.hpp"

namespace llmtrain::megatron {
namespace {

constexpr auto key = RowKind::key;
constexpr auto rule = RowKind::rule;
constexpr auto ignored = RowKind::not_applicable;
constexpr auto lacking = RowKind::unsupported;
constexpr auto flag = Takes::nothing;
constexpr auto many = Takes::many;

constexpr std::string_view scaler = "loss scaling belongs to fp16; bf16 and fp32 need none";
constexpr std::string_view fp8 = "fp8 is not built yet: the deck says bf16";
constexpr std::string_view fp8_detail = "a detail of fp8, which is not built yet";
constexpr std::string_view fp4 = "4-bit numbers: the deck says bf16";
constexpr std::string_view fused = "which kernels are fused is fixed; the result is the same formula";
constexpr std::string_view relative = "relative position biases";

constexpr ImportRow rows[] = {
    {"num-layers", rule, "model.layers"},
    {"encoder-num-layers", rule, "model.layers: another name of --num-layers"},
    {"decoder-num-layers", lacking, "a decoder beside an encoder (T5)"},
    {"hidden-size", key, "model.hidden"},
    {"ffn-hidden-size", rule, "model.ffn"},
    {"num-attention-heads", key, "model.heads"},
    {"kv-channels", rule, "model.head_dim"},
    {"group-query-attention", rule, "model.kv_heads", "", flag},
    {"num-query-groups", rule, "model.kv_heads"},
    {"attention-backend", ignored, "the attention kernel is chosen by the device"},
    {"softmax-type", lacking, "an offset in the softmax of attention", "vanilla"},
    {"window-size", lacking, "attention in a window"},
    {"window-attn-skip-freq", lacking, "attention in a window"},
    {"max-position-embeddings", rule, "the rows of learned positions"},
    {"position-embedding-type", rule, "model.family, model.positions"},
    {"relative-attention-num-buckets", lacking, relative},
    {"relative-attention-max-distance", lacking, relative},
    {"use-rotary-position-embeddings", rule, "model.positions: as --position-embedding-type rope", "", flag},
    {"rotary-base", rule, "model.rope.theta"},
    {"rotary-percent", lacking, "rotating a part of each head only: llmtrain rotates all of it", "1.0"},
    {"rotary-interleaved", lacking, "pairs of neighbours in rope: llmtrain rotates halves, as Hugging Face does", "",
     flag},
    {"rotary-seq-len-interpolation-factor", lacking, "linear interpolation of positions", "1"},
    {"use-rope-scaling", rule, "model.rope.scaling", "", flag},
    {"rope-scaling-factor", rule, "model.rope.scaling.factor, with --use-rope-scaling"},
    {"rope-type", lacking, "YaRN", "rope"},
    {"no-rope-freq", lacking, "layers without rope"},
    {"no-position-embedding", rule, "model.positions: an old companion of rope", "", flag},
    {"mrope-section", lacking, "positions of several kinds (multimodal)", "", many},
    {"make-vocab-size-divisible-by", key, "model.vocab_multiple", "128"},
    {"normalization", rule, "model.family"},
    {"norm-epsilon", key, "model.norm_eps", "1e-5"},
    {"layernorm-epsilon", rule, "model.norm_eps: the old name of --norm-epsilon"},
    {"apply-layernorm-1p", lacking, "norm weights centred around zero: llmtrain's are centred around one", "", flag},
    {"apply-residual-connection-post-layernorm", lacking, "the residual taken after the norm", "", flag},
    {"openai-gelu", rule, "model.activation gelu_tanh", "", flag},
    {"squared-relu", lacking, "squared ReLU: llmtrain has SwiGLU and GeLU", "", flag},
    {"swiglu", rule, "model.family, model.activation", "", flag},
    {"quick-geglu", lacking, "a gated quick GeLU: llmtrain has SwiGLU and GeLU", "", flag},
    {"activation-func-clamp-value", lacking, "clamping before the activation"},
    {"glu-linear-offset", lacking, "an offset in the gate", "0.0"},
    {"onnx-safe", ignored, "a work-around for exporting"},
    {"bert-no-binary-head", ignored, "BERT's second head", "", flag},
    {"untie-embeddings-and-output-weights", rule, "model.tied", "", flag},
    {"multi-latent-attention", lacking, "multi-latent attention", "", flag},
    {"mtp-num-layers", lacking, "multi-token prediction", "0"},
    {"mtp-loss-scaling-factor", lacking, "multi-token prediction"},
    {"disable-bias-linear", rule, "model.family, model.qkv_bias", "", flag},
    {"add-qkv-bias", rule, "model.qkv_bias", "", flag},
    {"qk-layernorm", rule, "model.qk_norm", "", flag},
    {"qk-l2-norm", lacking, "an L2 norm without weights on queries and keys", "", flag},
    {"init-method-std", key, "model.init_std", "0.02"},
    {"embedding-init-method-std", lacking,
     "another deviation for the embedding (and no weight decay on it): llmtrain uses model.init_std for all"},
    {"init-method-xavier-uniform", lacking, "Xavier initialization: llmtrain draws from a normal distribution", "",
     flag},
    {"data-parallel-random-init", lacking, "initial weights that differ between data ranks", "", flag},
    {"use-cpu-initialization", ignored, "initial weights never depend on layout or device", "", flag},
    {"no-initialization", ignored, "initial weights cost nothing that matters; a checkpoint replaces them", "", flag},
    {"init-model-with-meta-device", ignored, "no rank ever holds weights that are not its own", "", flag},
    {"vocab-size", rule, "model.vocab"},
    {"padded-vocab-size", rule, "model.vocab and model.vocab_multiple say it"},
    {"vocab-extra-ids", lacking, "additional ids for T5", "0"},

    {"bf16", rule, "precision.compute bf16", "", flag},
    {"fp16", lacking, "fp16: the deck says bf16, which has fp32's range and needs no loss scale", "", flag},
    {"grad-reduce-in-bf16", rule, "precision.gradients and precision.reduce", "", flag},
    {"accumulate-allreduce-grads-in-fp32", rule, "precision.gradients and precision.reduce", "", flag},
    {"loss-scale", ignored, scaler},
    {"initial-loss-scale", ignored, scaler},
    {"min-loss-scale", ignored, scaler},
    {"loss-scale-window", ignored, scaler},
    {"hysteresis", ignored, scaler},
    {"fp32-residual-connection", lacking, "a residual stream in fp32 beside bf16 layers", "", flag},
    {"apply-query-key-layer-scaling", lacking, "scores divided by the layer's number: a trick of fp16", "", flag},
    {"no-query-key-layer-scaling", ignored, "scores are never divided by the layer's number", "", flag},
    {"attention-softmax-in-fp32", ignored, "the softmax of attention is always fp32", "", flag},
    {"fp16-lm-cross-entropy", lacking, "a loss in fp16: llmtrain's is fp32", "", flag},
    {"disable-bf16-reduced-precision-matmul", ignored, "products of bf16 are always summed in fp32", "", flag},
    {"fp8-format", lacking, fp8},
    {"fp8", lacking, fp8},
    {"fp8-hybrid", lacking, fp8, "", flag},
    {"fp8-e4m3", lacking, fp8, "", flag},
    {"fp8-recipe", lacking, fp8_detail},
    {"fp8-quantizer-factory", lacking, fp8_detail},
    {"fp8-margin", lacking, fp8_detail},
    {"fp8-interval", ignored, "Megatron ignores it too"},
    {"fp8-amax-history-len", lacking, fp8_detail},
    {"fp8-amax-compute-algo", lacking, fp8_detail},
    {"no-fp8-wgrad", lacking, fp8_detail, "", flag},
    {"fp8-param-gather", lacking, fp8_detail, "", flag},
    {"first-last-layers-bf16", lacking, fp8_detail, "", flag},
    {"num-layers-at-start-in-bf16", lacking, fp8_detail},
    {"num-layers-at-end-in-bf16", lacking, fp8_detail},
    {"reuse-grad-buf-for-mxfp8-param-ag", lacking, fp8_detail, "", flag},
    {"keep-fp8-transpose-cache", lacking, fp8_detail, "", flag},
    {"fp4-format", lacking, fp4},
    {"fp4-recipe", lacking, fp4},
    {"fp4-quantizer-factory", lacking, fp4},
    {"fp4-param-gather", lacking, fp4, "", flag},
    {"kitchen-config-file", lacking, fp8_detail},
    {"kitchen-recipe-number", lacking, fp8_detail},
    {"use-precision-aware-optimizer", rule, "precision.gradients and precision.moments, with the --*-dtype arguments",
     "", flag},
    {"main-grads-dtype", rule, "precision.gradients"},
    {"main-params-dtype", lacking, "master weights in fp16: llmtrain's are fp32", "fp32"},
    {"exp-avg-dtype", rule, "precision.moments"},
    {"exp-avg-sq-dtype", rule, "precision.moments"},

    {"transformer-impl", ignored, "there is one implementation"},
    {"use-mcore-models", ignored, "there is one implementation", "", flag},
    {"use-legacy-models", ignored, "there is one implementation", "", flag},
    {"use-flash-attn", ignored, "attention never stores the matrix of scores", "", flag},
    {"use-flash-attn-v2", ignored, "attention never stores the matrix of scores", "", flag},
    {"no-masked-softmax-fusion", ignored, fused, "", flag},
    {"no-bias-gelu-fusion", rule, "model.activation: Megatron's fused GeLU is the tanh form, the other one is exact",
     "", flag},
    {"no-bias-swiglu-fusion", ignored, fused, "", flag},
    {"use-fused-weighted-squared-relu", ignored, fused, "", flag},
    {"no-bias-dropout-fusion", ignored, fused, "", flag},
    {"no-rope-fusion", ignored, fused, "", flag},
    {"cross-entropy-loss-fusion", ignored, fused, "", flag},
    {"cross-entropy-fusion-impl", ignored, fused},
    {"no-persist-layer-norm", ignored, fused, "", flag},
    {"use-te-activation-func", ignored, fused, "", flag},
    {"no-gradient-accumulation-fusion", ignored, "gradients are accumulated by the product itself", "", flag},
    {"te-rng-tracker", ignored, "random numbers are pure functions of seed and place", "", flag},
    {"inference-rng-tracker", ignored, "random numbers are pure functions of seed and place", "", flag},
};

}  // namespace

std::span<const ImportRow> model_rows() { return rows; }

}  // namespace llmtrain::megatron
