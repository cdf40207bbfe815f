// SPDX-License-Identifier: Apache-2.0
/// Keys of `data`: token files, their order, the tokenizer, evaluation.
#include "llmtrain/config/key.hpp"

namespace llmtrain {
namespace {

using D = DataConfig;

std::vector<Key> source_keys(const Rows<D>& row) {
  return {
      row("train", &D::train,
          {.meaning = "Training data: prefixes of .bin/.idx pairs as preprocess writes them; no default.",
           .also = {"data_path", "train_data_path", "dataset", "datasets", "corpus", "train_data", "path"}}),
      row("valid", &D::valid,
          {.meaning = "Evaluation data, each set on its own; if not empty, split is not used.",
           .also = {"valid_data_path", "validation", "val", "eval", "validation_data"}}),
      row("split", &D::split,
          {.meaning = "Shares of the documents for training, validation and test, in any unit.",
           .also = {"train_split", "splits"}}),
      row("samples", &D::samples,
          {.meaning = "Training sequences that the sample order is made for; 0 = run.steps x schedule.global_batch.",
           .range = Range::between(0, 1e18),
           .unit = "sequences",
           .also = {"train_samples", "num_samples"}}),
      row("seed", &D::seed,
          {.meaning = "Seed of the sample order; 0 = run.seed.",
           .range = Range::at_least(0),
           .also = {"data_seed", "shuffle_seed"}}),
      row("order", &D::order,
          {.meaning = "Order of the samples: as Megatron-LM shuffles them, or by a permutation without index files.",
           .names = {"megatron", "shuffled"},
           .also = {"shuffle", "sampler"}}),
  };
}

}  // namespace

Block data_block() {
  const Rows<D> row("data", &Deck::data);
  Block block{"data", "Token files, their order, the tokenizer and evaluation.", source_keys(row)};
  const std::vector<Key> more{
      row("document_mask", &D::document_mask,
          {.meaning = "Attention does not cross document ends; positions restart there.",
           .also = {"reset_attention_mask", "reset_position_ids", "packed"}}),
      row("mask_eod", &D::mask_eod, {.meaning = "No loss on the end-of-document token.", .also = {"eod_mask_loss"}}),
      row("mask_prompt", &D::mask_prompt,
          {.meaning = "No loss on prompts, whose lengths preprocess --prompt-key wrote beside the data.",
           .also = {"completion_only_loss", "answer_only_loss", "train_on_prompt", "train_on_inputs", "loss_mask"}}),
      row("tokenizer", &D::tokenizer,
          {.meaning = "bytes, a file or folder, or {file: F, pattern: P, special: {TEXT: id}, eod: TEXT}.",
           .also = {"tokenizer_type", "tokenizer_model", "tokenizer_path", "vocab_file", "merge_file"}}),
      row("eval_every", &D::eval_every,
          {.meaning = "Steps between evaluations; 0 = never.",
           .range = Range::between(0, 1e9),
           .unit = "steps",
           .also = {"eval_interval", "eval_freq", "eval_steps", "val_check_interval"}}),
      row("eval_batches", &D::eval_batches,
          {.meaning = "Batches of global_batch sequences in an evaluation, always the same first ones.",
           .range = Range::between(1, 1e9),
           .unit = "batches",
           .also = {"eval_iters", "limit_val_batches"}}),
  };
  block.keys.insert(block.keys.end(), more.begin(), more.end());
  return block;
}

}  // namespace llmtrain
