// SPDX-License-Identifier: Apache-2.0
/// Keys of `precision` and `optimizer`.
#include "llmtrain/config/key.hpp"

namespace llmtrain {
namespace {

using O = OptimizerConfig;

std::vector<Key> rate_keys(const Rows<O>& row) {
  return {
      row("kind", &O::kind, {.meaning = "Update rule.", .names = {"adamw"}, .also = {"optimizer", "name", "type"}}),
      row("lr", &O::lr,
          {.meaning = "Peak learning rate.",
           .range = Range::between(0, 100),
           .also = {"learning_rate", "max_lr", "peak_lr", "base_lr"}}),
      row("min_lr", &O::min_lr,
          {.meaning = "Learning rate at the end of the decay and after it.",
           .range = Range::between(0, 100),
           .also = {"lr_min", "final_lr", "end_lr", "min_learning_rate", "eta_min"}}),
      row("schedule", &O::schedule,
          {.meaning = "Learning rate after the warm-up.",
           .names = {"cosine", "linear", "constant", "wsd"},
           .also = {"lr_decay_style", "lr_schedule", "lr_scheduler", "lr_scheduler_type", "scheduler"}}),
      row("warmup_steps", &O::warmup_steps,
          {.meaning = "Steps in which the learning rate rises to lr.",
           .range = Range::between(0, 1e9),
           .unit = "steps",
           .also = {"lr_warmup_iters", "warmup_iters", "num_warmup_steps", "lr_warmup_steps"}}),
      row("warmup", &O::warmup,
          {.meaning = "How it rises: in proportion to the step, or to its logarithm.",
           .names = {"linear", "log"},
           .also = {"warmup_type", "warmup_style"}}),
      row("decay_steps", &O::decay_steps,
          {.meaning = "Step at which min_lr is reached; 0 = run.steps.",
           .range = Range::between(0, 1e9),
           .unit = "steps",
           .also = {"lr_decay_iters", "lr_decay_steps", "decay_iters"}}),
      row("final_decay_steps", &O::final_decay_steps,
          {.meaning = "Length of the last decay of wsd; 0 = a tenth of the horizon.",
           .range = Range::between(0, 1e9),
           .unit = "steps",
           .also = {"lr_wsd_decay_iters", "wsd_decay_steps", "cooldown_steps"}}),
  };
}

}  // namespace

Block precision_block() {
  const Rows<PrecisionConfig> row("precision", &Deck::precision);
  using P = PrecisionConfig;
  return {
      "precision",
      "Number formats; master weights are fp32 (fp64 with compute: fp64).",
      {
          row("compute", &P::compute,
              {.meaning = "Weights, activations and matrix products; fp64 sets all.",
               .names = {"bf16", "fp32", "fp64"},
               .also = {"dtype", "bf16", "fp16", "mixed_precision", "params_dtype", "torch_dtype"}}),
          row("linear", &P::linear,
              {.meaning =
                   "Products of the blocks' linear layers in training and evaluation: as compute, or fp8 (values in "
                   "E4M3, gradients in E5M2, each matrix that a rank multiplies with the scale of its largest "
                   "element); fp8 goes with compute bf16, and generate computes in that.",
               .names = {"compute", "fp8"},
               .also = {"fp8", "fp8_format", "fp8_recipe"}}),
          row("keep_fp8", &P::keep_fp8,
              {.meaning = "Keep the fp8 copies of weights that are whole on a rank (not ZeRO-3's chunks) from one "
                          "update to the next, 2 bytes an element, instead of making them for every micro-batch.",
               .also = {"fp8_weight_cache", "keep_fp8_transpose_cache"}}),
          row("gradients", &P::gradients,
              {.meaning = "Gradient accumulation over micro-batches; bf16 only with compute bf16.",
               .names = {"fp32", "bf16"},
               .also = {"accumulate_allreduce_grads_in_fp32", "grad_accum_dtype"}}),
          row("reduce", &P::reduce,
              {.meaning = "Gradients on their way between data-parallel ranks; bf16 only with compute bf16.",
               .names = {"fp32", "bf16"},
               .also = {"communication_data_type", "grad_reduce_in_bf16", "reduce_dtype"}}),
          row("moments", &P::moments,
              {.meaning = "Adam's two moments.",
               .names = {"fp32", "bf16"},
               .also = {"exp_avg_dtype", "optimizer_dtype"}}),
      }};
}

Block optimizer_block() {
  const Rows<O> row("optimizer", &Deck::optimizer);
  Block block{"optimizer", "The update rule and its learning rate.", rate_keys(row)};
  const std::vector<Key> rule_keys{
      row("betas", &O::betas,
          {.meaning = "Decay of Adam's first and second moment.",
           .range = Range::from_below(0, 1),
           .also = {"adam_betas", "adam_beta1", "adam_beta2", "beta1", "beta2"},
           .length = 2}),
      row("eps", &O::eps,
          {.meaning = "Added to the root of the second moment.",
           .range = Range::above_to(0, 1),
           .also = {"adam_eps", "epsilon", "adam_epsilon"}}),
      row("weight_decay", &O::weight_decay,
          {.meaning = "Decoupled weight decay of matrices (not of norms and biases).",
           .range = Range::between(0, 100),
           .also = {"wd", "decay"}}),
      row("clip", &O::clip,
          {.meaning = "Bound on the global norm of the gradient; 0 = off.",
           .range = Range::between(0, 1e12),
           .also = {"clip_grad", "grad_clip", "gradient_clipping", "max_grad_norm", "max_norm"}}),
      row("max_skipped", &O::max_skipped,
          {.meaning = "Updates skipped in a row for non-finite gradients before exit 80.",
           .range = Range::between(0, 1e9),
           .unit = "steps",
           .also = {"max_skipped_steps"}}),
  };
  block.keys.insert(block.keys.end(), rule_keys.begin(), rule_keys.end());
  return block;
}

}  // namespace llmtrain
