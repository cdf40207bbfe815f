// SPDX-License-Identifier: Apache-2.0
/// Keys of `parallel` and `schedule`: how the work is split over ranks and micro-batches.
#include "llmtrain/config/key.hpp"

namespace llmtrain {
namespace {

using P = ParallelConfig;

std::vector<Key> axis_keys(const Rows<P>& row) {
  return {
      row("tensor", &P::tensor,
          {.meaning = "Ranks that share each matrix; data = ranks / (tensor x pipeline).",
           .range = Range::between(1, 1e6),
           .unit = "ranks",
           .also = {"tensor_model_parallel_size", "tp", "tp_size", "tensor_parallel", "model_parallel_size"}}),
      row("pipeline", &P::pipeline,
          {.meaning = "Pipeline stages.",
           .range = Range::between(1, 1e6),
           .unit = "ranks",
           .also = {"pipeline_model_parallel_size", "pp", "pp_size", "pipeline_parallel"}}),
      row("shard", &P::shard,
          {.meaning = "Data ranks that ZeRO shards over; the rest hold replicas; 0 = all of data.",
           .range = Range::between(0, 1e6),
           .unit = "ranks",
           .also = {"data_parallel_shard_degree", "dp_shard", "fsdp_size", "zero_hpz_partition_size"}}),
      row("sequence", &P::sequence,
          {.meaning = "Split the activations between tensor-parallel parts over tokens.",
           .also = {"sequence_parallel", "sp"}}),
      row("zero", &P::zero,
          {.meaning = "What is sharded over data ranks: 1 optimizer state, 2 and gradients, 3 and weights.",
           .range = Range::between(0, 3),
           .also = {"zero_stage", "zero_optimization", "stage", "fsdp"}}),
      row("order", &P::order,
          {.meaning = "Axes from the fastest-running to the slowest over ranks.",
           .names = {"tp-dp-pp", "tp-pp-dp"},
           .also = {"rank_order"}}),
      row("stage_layers", &P::stage_layers,
          {.meaning =
               "Layers of each pipeline stage; of each piece in the model's order if interleaved, dealt out round the "
               "stages; [] = as even as can be.",
           .range = Range::between(1, 10000),
           .unit = "layers",
           .also = {"pipeline_model_parallel_layout", "layers_per_stage"}}),
      row("count_embedding", &P::count_embedding,
          {.meaning = "The embedding counts as a layer when layers are split.",
           .also = {"account_for_embedding_in_pipeline_split"}}),
      row("count_head", &P::count_head,
          {.meaning = "The LM head counts as a layer when layers are split.",
           .also = {"account_for_loss_in_pipeline_split"}}),
  };
}

std::vector<Key> zero_keys(const Rows<P>& row) {
  const Range elements = Range::between(0, 1e15);
  return {
      row("prefetch", &P::prefetch,
          {.meaning = "Weights gathered ahead of use: the next block, and further ones up to this sum; 0 = none.",
           .range = elements,
           .unit = "elements",
           .also = {"stage3_prefetch_bucket_size", "prefetch_bucket_size"}}),
      row("persistence", &P::persistence,
          {.meaning = "Tensors of at most this size stay whole under ZeRO-3.",
           .range = elements,
           .unit = "elements",
           .also = {"stage3_param_persistence_threshold", "param_persistence_threshold"}}),
      row("max_live", &P::max_live,
          {.meaning = "Bound on gathered weights under ZeRO-3: the block in use and what is prefetched.",
           .range = Range::between(1, 1e15),
           .unit = "elements",
           .also = {"stage3_max_live_parameters", "max_live_parameters"}}),
      row("bucket", &P::bucket,
          {.meaning = "A block's collectives go out in batches of at most this size, or one tensor a batch.",
           .range = Range::between(1, 1e15),
           .unit = "elements",
           .also = {"reduce_bucket_size", "allgather_bucket_size", "bucket_size", "ddp_bucket_size"}}),
      row("exchange", &P::exchange,
          {.meaning = "Shards on at most so many ranks exchange their gradients under ZeRO-2 and 3; on more, and "
                      "where they leave a node, they reduce-scatter them, with less memory.",
           .range = Range::between(1, 1e6),
           .unit = "ranks"}),
      row("whole_gradients", &P::whole_gradients,
          {.meaning = "Parts whose gradients stay whole over the step under ZeRO-2 and 3 and are reduced once.",
           .names = {"embedding", "head"}}),
  };
}

}  // namespace

Block parallel_block() {
  const Rows<P> row("parallel", &Deck::parallel);
  Block block{"parallel", "How ranks share the model and the data.", axis_keys(row)};
  for (Key& key : zero_keys(row)) block.keys.push_back(key);
  return block;
}

Block schedule_block() {
  const Rows<ScheduleConfig> row("schedule", &Deck::schedule);
  using S = ScheduleConfig;
  return {
      "schedule",
      "Batches, and the order in which micro-batches run.",
      {
          row("kind", &S::kind,
              {.meaning = "Pipeline schedule.",
               .names = {"gpipe", "1f1b", "interleaved"},
               .also = {"pipeline_schedule", "pipeline_parallel_schedule"}}),
          row("chunks", &S::chunks,
              {.meaning = "Model chunks a stage, for interleaved.",
               .range = Range::between(1, 1000),
               .also = {"virtual_pipeline_model_parallel_size", "num_virtual_stages", "vpp"}}),
          row("micro_batch", &S::micro_batch,
              {.meaning = "Sequences that go through a rank's model at once.",
               .range = Range::between(1, 1e6),
               .unit = "sequences",
               .also = {"micro_batch_size", "train_micro_batch_size_per_gpu", "per_device_train_batch_size",
                        "batch_size", "local_batch_size"}}),
          row("global_batch", &S::global_batch,
              {.meaning = "Sequences of one update, over all ranks and micro-batches.",
               .range = Range::between(1, 1e9),
               .unit = "sequences",
               .also = {"global_batch_size", "train_batch_size", "total_batch_size"}}),
          row("recompute", &S::recompute,
              {.meaning = "Activations computed again in backward: none, those of recompute_modules, or whole blocks.",
               .names = {"none", "selective", "block"},
               .also = {"recompute_granularity", "activation_checkpointing", "gradient_checkpointing"}}),
          row("recompute_modules", &S::recompute_modules,
              {.meaning = "What recompute: selective computes again.",
               .names = {"norm", "activation", "attention", "mlp"}}),
      }};
}

}  // namespace llmtrain
