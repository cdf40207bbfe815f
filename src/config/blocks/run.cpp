// SPDX-License-Identifier: Apache-2.0
/// Keys of `run`: name, length, device and folder of a run.
#include "llmtrain/config/key.hpp"

namespace llmtrain {

namespace {

using R = RunConfig;

/// Its name and how long it goes on.
std::vector<Key> length_keys(const Rows<R>& row) {
  return {
      row("name", &R::name,
          {.meaning = "Name of the run, for people.", .also = {"run_name", "job_name"}, .in_run_id = false}),
      row("seed", &R::seed,
          {.meaning =
               "Seed of the initial weights, of dropout and, unless data.seed says otherwise, of the sample order.",
           .range = Range::at_least(0),
           .also = {"random_seed", "manual_seed"}}),
      row("steps", &R::steps,
          {.meaning =
               "Updates in the whole training: the horizon of learning rate and sample order; 0 saves the initial "
               "state and stops.",
           .range = Range::between(0, 1e9),
           .unit = "steps",
           .also = {"train_iters", "max_steps", "num_steps", "max_iters", "total_steps", "iterations"}}),
      row("stop_after", &R::stop_after,
          {.meaning = "Save and leave with exit 0 after this step; 0 = run.steps.",
           .range = Range::between(0, 1e9),
           .unit = "steps",
           .also = {"exit_interval", "stop_at"}}),
      row("max_walltime", &R::max_walltime,
          {.meaning = "Save and leave with exit 75 before this much time has passed; 0 = no limit.",
           .range = Range::between(0, 1e9),
           .unit = "seconds",
           .also = {"exit_duration_in_mins", "walltime", "time_limit", "max_time"},
           .duration = true}),
      row("hang_timeout", &R::hang_timeout,
          {.meaning =
               "End the job with exit 81 and a report where each rank stands, once no rank has got on for so long: "
               "finished an operation, a message, a read or a write; 0 = never.",
           .range = Range::between(0, 1e9),
           .unit = "seconds",
           .also = {"distributed_timeout_minutes", "nccl_timeout", "train_timeout_seconds", "timeout", "watchdog"},
           .duration = true,
           .in_run_id = false}),
  };
}

}  // namespace

Block run_block() {
  const Rows<R> row("run", &Deck::run);
  Block block{"run", "Name, length, device and folder of the run.", length_keys(row)};
  const std::vector<Key> more = {
      row("device", &R::device,
          {.meaning = "Where to compute; auto takes a GPU if there is one.",
           .names = {"auto", "cpu", "cuda"},
           .also = {"accelerator", "backend"}}),
      row("threads", &R::threads,
          {.meaning = "OpenMP threads a rank; 0 = OMP_NUM_THREADS if set, else its share of the cores.",
           .range = Range::between(0, 4096),
           .unit = "threads",
           .also = {"num_threads", "omp_num_threads"},
           .in_run_id = false}),
      row("dir", &R::dir,
          {.meaning = "Folder of deck.yaml, metrics.jsonl, log.txt and checkpoints/.",
           .also = {"output_dir", "out_dir", "run_dir", "workdir"},
           .in_run_id = false,
           .in_checkpoint = false}),
      row("deterministic", &R::deterministic,
          {.meaning = "On GPUs, fix all algorithms so that two runs give the same bits (CPU runs always do).",
           .also = {"deterministic_mode"}}),
      row("share_gpu", &R::share_gpu, {.meaning = "Let several ranks use one GPU (for tests)."}),
      row("overwrite", &R::overwrite,
          {.meaning = "Start afresh in a folder that holds another run's files.", .also = {"force"}}),
  };
  block.keys.insert(block.keys.end(), more.begin(), more.end());
  return block;
}

}  // namespace llmtrain
