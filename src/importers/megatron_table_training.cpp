// SPDX-License-Identifier: Apache-2.0
/// Megatron-LM's arguments of training and data, one row each; the misspelt ones of recipes.
#include "megatron_tables.hpp"

namespace llmtrain::megatron {
namespace {

constexpr auto key = RowKind::key;
constexpr auto rule = RowKind::rule;
constexpr auto ignored = RowKind::not_applicable;
constexpr auto lacking = RowKind::unsupported;
constexpr auto flag = Takes::nothing;
constexpr auto many = Takes::many;

constexpr std::string_view adamw = "another optimizer than AdamW";
constexpr std::string_view offload = "optimizer state in host memory";
constexpr std::string_view index = "no index files are kept beside the data";

constexpr ImportRow rows[] = {
    {"micro-batch-size", rule, "schedule.micro_batch"},
    {"batch-size", rule, "schedule.micro_batch: the old name of --micro-batch-size"},
    {"global-batch-size", rule, "schedule.global_batch"},
    {"rampup-batch-size", lacking, "a global batch that grows: it has its full size from the first step", "", many},
    {"decrease-batch-size-if-needed", ignored, "a batch that the ranks do not divide is refused with the nearest ones",
     "", flag},
    {"train-iters", rule, "run.steps"},
    {"train-samples", rule, "run.steps = samples / global batch"},
    {"seed", key, "run.seed", "1234"},
    {"exit-interval", rule, "run.stop_after"},
    {"exit-duration-in-mins", rule, "run.max_walltime"},
    {"exit-signal-handler", ignored, "signals always stop all ranks after the same step, with a checkpoint", "", flag},
    {"deterministic-mode", key, "run.deterministic", "", flag},
    {"calculate-per-token-loss", ignored, "llmtrain always divides the sum over all target tokens once by their number",
     "", flag},
    {"recompute-activations", rule, "schedule.recompute selective", "", flag},
    {"recompute-granularity", rule, "schedule.recompute"},
    {"recompute-method", rule, "schedule.recompute block"},
    {"recompute-num-layers", rule, "schedule.recompute block: every layer"},
    {"recompute-modules", rule, "schedule.recompute_modules", "", many},
    {"checkpoint-activations", rule, "schedule.recompute block: an old name", "", flag},
    {"distribute-saved-activations", ignored, "parallel.sequence keeps every saved activation split", "", flag},
    {"cpu-offloading-num-layers", lacking, "activations in host memory", "0"},
    {"no-clone-scatter-output-in-embedding", ignored, "a detail of PyTorch's memory", "", flag},

    {"optimizer", rule, "optimizer.kind"},
    {"adam-beta1", rule, "optimizer.betas"},
    {"adam-beta2", rule, "optimizer.betas"},
    {"adam-eps", key, "optimizer.eps", "1e-8"},
    {"weight-decay", rule, "optimizer.weight_decay"},
    {"start-weight-decay", rule, "optimizer.weight_decay"},
    {"end-weight-decay", rule, "optimizer.weight_decay"},
    {"weight-decay-incr-style", lacking, "weight decay that changes: the deck keeps one value", "constant"},
    {"clip-grad", key, "optimizer.clip", "1.0"},
    {"sgd-momentum", lacking, adamw},
    {"muon-momentum", lacking, adamw},
    {"muon-no-split-qkv", lacking, adamw, "", flag},
    {"muon-use-nesterov", lacking, adamw, "", flag},
    {"muon-scale-mode", lacking, adamw},
    {"muon-fp32-matmul-prec", lacking, adamw},
    {"muon-num-ns-steps", lacking, adamw},
    {"muon-tp-mode", lacking, adamw},
    {"muon-extra-scale-factor", lacking, adamw},
    {"optimizer-cpu-offload", lacking, offload, "", flag},
    {"optimizer-offload-fraction", lacking, offload},
    {"use-torch-optimizer-for-cpu-offload", lacking, offload, "", flag},
    {"overlap-cpu-optimizer-d2h-h2d", lacking, offload, "", flag},
    {"no-pin-cpu-grads", lacking, offload, "", flag},
    {"no-pin-cpu-params", lacking, offload, "", flag},
    {"dump-param-to-param-group-map", ignored, "print-deck and the log say what is decayed"},
    {"hidden-dropout", key, "model.dropout", "0.1"},
    {"attention-dropout", rule, "0 is what llmtrain does; any other value is listed as not supported"},

    {"lr", key, "optimizer.lr"},
    {"min-lr", key, "optimizer.min_lr", "0.0"},
    {"lr-decay-style", rule, "optimizer.schedule"},
    {"lr-wsd-decay-style", rule, "optimizer.schedule wsd"},
    {"lr-decay-iters", rule, "optimizer.decay_steps"},
    {"lr-decay-samples", rule, "optimizer.decay_steps = samples / global batch"},
    {"lr-wsd-decay-iters", rule, "optimizer.final_decay_steps"},
    {"lr-wsd-decay-samples", rule, "optimizer.final_decay_steps = samples / global batch"},
    {"lr-warmup-fraction", rule, "optimizer.warmup_steps"},
    {"lr-warmup-iters", rule, "optimizer.warmup_steps"},
    {"lr-warmup-samples", rule, "optimizer.warmup_steps = samples / global batch"},
    {"lr-warmup-init", lacking, "a warm-up that starts above zero", "0"},
    {"warmup", lacking, "an argument that Megatron refuses; write --lr-warmup-fraction"},
    {"override-opt_param-scheduler", ignored, "the schedule is a pure function of the deck and the step", "", flag},
    {"override-opt-param-scheduler", ignored, "the schedule is a pure function of the deck and the step", "", flag},
    {"use-checkpoint-opt_param-scheduler", ignored, "the schedule is a pure function of the deck and the step", "",
     flag},
    {"use-checkpoint-opt-param-scheduler", ignored, "the schedule is a pure function of the deck and the step", "",
     flag},
    {"decoupled-lr", lacking, "another learning rate for embedding and head"},
    {"decoupled-min-lr", lacking, "another learning rate for embedding and head"},

    {"data-path", rule, "data.train", "", many},
    {"train-data-path", rule, "data.train", "", many},
    {"valid-data-path", rule, "data.valid", "", many},
    {"test-data-path", ignored, "there is no test set", "", many},
    {"data-args-path", lacking, "a blend in a file of its own: write it into data.train"},
    {"per-split-data-args-path", lacking, "blends in a file of its own: write them into data.train and data.valid"},
    {"split", rule, "data.split"},
    {"data-cache-path", ignored, index},
    {"object-storage-cache-path", lacking, "data in object storage"},
    {"no-mmap-bin-files", ignored, "how files are read does not change the samples", "", flag},
    {"mock-data", lacking, "artificial data: make a small set with llmtrain preprocess", "", flag},
    {"seq-length", rule, "model.seq_len"},
    {"encoder-seq-length", rule, "model.seq_len: another name of --seq-length"},
    {"num-workers", ignored, "samples are read ahead by the loader's own thread"},
    {"num-dataset-builder-threads", ignored, index},
    {"dataloader-type", lacking, "another order of the samples", "single"},
    {"reset-position-ids", rule, "data.document_mask", "", flag},
    {"reset-attention-mask", rule, "data.document_mask", "", flag},
    {"eod-mask-loss", key, "data.mask_eod", "", flag},
    {"no-create-attention-mask-in-dataloader", ignored, "masks are never made", "", flag},
    {"mid-level-dataset-surplus", lacking, "another surplus of samples in a blend", "0.005"},
    {"allow-ambiguous-pad-tokens", ignored, "samples are never padded", "", flag},
    {"tokenizer-type", rule, "data.tokenizer"},
    {"tokenizer-model", rule, "data.tokenizer"},
    {"vocab-file", rule, "data.tokenizer"},
    {"merge-file", rule, "data.tokenizer"},
    {"tokenizer-metadata", ignored, "llmtrain reads the tokenizer's own file"},
    {"tiktoken-pattern", rule, "data.tokenizer: its pattern"},
    {"tiktoken-num-special-tokens", rule, "model.vocab: ids that Megatron puts before the file's"},
    {"tiktoken-special-tokens", lacking, "special tokens: name them in data.tokenizer {special: ...}", "", many},
    {"legacy-tokenizer", ignored, "a detail of Megatron's code", "", flag},
    {"trust-remote-code", ignored, "a tokenizer is data; no code of it is run", "", flag},

    {"eval-interval", key, "data.eval_every", "1000"},
    {"eval-iters", rule, "data.eval_batches"},
    {"full-validation", lacking, "an evaluation over the whole set: it has data.eval_batches batches", "", flag},
    {"multiple-validation-sets", rule, "data.valid: each set is always evaluated by itself", "", flag},
    {"skip-train", lacking, "evaluation without training", "", flag},
    {"test-mode", lacking, "a test of the program", "", flag},
};

constexpr Misspelt wrong[] = {
    {"norm-rms-norm", "normalization", "RMSNorm", true, "read as --normalization RMSNorm"},
    {"rms-norm", "normalization", "RMSNorm", true, "read as --normalization RMSNorm"},
    {"use-rms-norm", "normalization", "RMSNorm", true, "read as --normalization RMSNorm"},
    {"use-rmsnorm", "normalization", "RMSNorm", true, "read as --normalization RMSNorm"},
    {"rmsnorm", "normalization", "RMSNorm", true, "read as --normalization RMSNorm"},
    {"untied-embeddings-and-output-weights", "untie-embeddings-and-output-weights", "", true,
     "read as --untie-embeddings-and-output-weights"},
    {"untie-embeddings", "untie-embeddings-and-output-weights", "", true,
     "read as --untie-embeddings-and-output-weights"},
    {"num-key-value-heads", "num-query-groups", "", true, "read as --num-query-groups (with --group-query-attention)"},
    {"num-kv-heads", "num-query-groups", "", true, "read as --num-query-groups (with --group-query-attention)"},
    {"rope-theta", "rotary-base", "", true, "read as --rotary-base"},
    {"rope-base", "rotary-base", "", true, "read as --rotary-base"},
    {"use-swiglu", "swiglu", "", true, "read as --swiglu"},
    {"disable-bias", "disable-bias-linear", "", true, "read as --disable-bias-linear"},
    {"max-lr", "lr", "", true, "read as --lr"},
    {"gradient-clipping", "clip-grad", "", true, "read as --clip-grad"},
    {"te-ln-scale-bf16", "apply-layernorm-1p", "", false,
     "the nearest real argument about the norm's scale is --apply-layernorm-1p. "
     "llmtrain computes norms in fp32 from bf16 weights, whose masters are fp32"},
    {"zero-stage", "data-parallel-sharding-strategy", "", false,
     "an argument of Megatron-DeepSpeed; in Megatron-LM it is --use-distributed-optimizer (stage 1) or "
     "--data-parallel-sharding-strategy; set parallel.zero"},
    {"deepspeed", "use-distributed-optimizer", "", false,
     "an argument of Megatron-DeepSpeed: import its JSON file with llmtrain import deepspeed"},
    {"deepspeed_config", "use-distributed-optimizer", "", false,
     "an argument of Megatron-DeepSpeed: import its JSON file with llmtrain import deepspeed"},
};

}  // namespace

std::span<const ImportRow> training_rows() { return rows; }
std::span<const Misspelt> misspelt() { return wrong; }

}  // namespace llmtrain::megatron
