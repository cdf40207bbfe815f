// SPDX-License-Identifier: Apache-2.0
/// Keys of `checkpoint` and `output`.
#include "llmtrain/config/key.hpp"

namespace llmtrain {
namespace {

using C = CheckpointConfig;

std::vector<Key> save_keys(const Rows<C>& row) {
  return {
      row("dir", &C::dir,
          {.meaning = "Folder of the step folders; empty = <run.dir>/checkpoints.",
           .also = {"save", "save_dir", "checkpoint_dir", "ckpt_dir"},
           .may_be_empty = true,
           .in_run_id = false,
           .in_checkpoint = false}),
      row("every", &C::every,
          {.meaning = "Steps between saves; 0 = no save at all.",
           .range = Range::between(0, 1e9),
           .unit = "steps",
           .also = {"save_interval", "save_every", "checkpoint_interval", "save_steps", "interval"}}),
      row("final", &C::final, {.meaning = "Save after the last step too.", .also = {"save_final", "save_last"}}),
      row("keep", &C::keep,
          {.meaning = "Newest checkpoints that are kept.",
           .range = Range::between(1, 1e9),
           .unit = "checkpoints",
           .also = {"keep_latest_k", "save_total_limit", "max_to_keep", "keep_last"}}),
      row("resume", &C::resume,
          {.meaning = "auto: the newest good checkpoint of dir; never: start afresh; or the path of one.",
           .also = {"load", "resume_from", "resume_from_checkpoint", "init_from"},
           .in_run_id = false}),
      row("async", &C::async, {.meaning = "Write while training goes on.", .also = {"async_save", "async_mode"}}),
      row("verify", &C::verify, {.meaning = "Read back and compare what was written before it counts."}),
      row("max_failed", &C::max_failed,
          {.meaning = "Failed saves in a row before exit 74.", .range = Range::between(1, 1e9), .unit = "saves"}),
      row("allow", &C::allow,
          {.meaning = "Blocks and keys that may differ from the checkpoint's deck on resume.", .key_names = true}),
  };
}

}  // namespace

Block checkpoint_block() {
  const Rows<C> row("checkpoint", &Deck::checkpoint);
  return {"checkpoint", "Saving and resuming.", save_keys(row)};
}

Block output_block() {
  const Rows<OutputConfig> row("output", &Deck::output);
  return {"output",
          "What a run prints and records.",
          {
              row("log_every", &OutputConfig::log_every,
                  {.meaning = "Steps between lines of the log.",
                   .range = Range::between(1, 1e9),
                   .unit = "steps",
                   .also = {"log_interval", "logging_steps", "log_freq", "print_every"},
                   .in_run_id = false}),
              row("metrics", &OutputConfig::metrics,
                  {.meaning = "Write metrics.jsonl, one object a step.", .in_run_id = false}),
          }};
}

}  // namespace llmtrain
