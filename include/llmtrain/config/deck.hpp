// SPDX-License-Identifier: Apache-2.0
/// The input deck as typed structs; the values below are the defaults. What each key means, its range and its other
/// names are declared beside it in src/config/blocks/ (one row a key).
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace llmtrain {

enum class DeviceChoice { automatic, cpu, cuda };
enum class Family { llama, gpt };
enum class Activation { silu, gelu, gelu_tanh };
enum class Positions { rope, learned };
enum class RankOrder { tp_dp_pp, tp_pp_dp };
enum class ScheduleKind { gpipe, one_f_one_b, interleaved };
enum class Recompute { none, selective, block };
enum class Compute { bf16, fp32, fp64 };
enum class Storage16 { fp32, bf16 };
enum class LinearProducts { compute, fp8 };
enum class LrSchedule { cosine, linear, constant, wsd };
enum class Warmup { linear, log };
enum class SampleOrder { megatron, shuffled };

struct RunConfig {
  std::string name = "demo";
  std::int64_t seed = 1234;
  std::int64_t steps = 200;
  std::int64_t stop_after = 0;
  double max_walltime = 0;    ///< seconds
  double hang_timeout = 600;  ///< seconds
  DeviceChoice device = DeviceChoice::automatic;
  int threads = 0;
  std::string dir = "runs/demo";
  bool deterministic = false;
  bool share_gpu = false;
  bool overwrite = false;
};

/// Llama-3.1 frequency scaling; factor 0 means none (an empty map in the deck).
struct RopeScaling {
  double factor = 0;
  double low_freq_factor = 1;
  double high_freq_factor = 4;
  std::int64_t original_max_position = 8192;
};

struct RopeConfig {
  double theta = 500000;
  RopeScaling scaling;
};

struct ModelConfig {
  Family family = Family::llama;
  std::string preset;
  std::int64_t layers = 4;
  std::int64_t hidden = 256;
  std::int64_t heads = 8;
  std::int64_t kv_heads = 4;
  std::int64_t head_dim = 0;  ///< 0 = hidden / heads; resolved after reading
  std::int64_t ffn = 688;
  std::int64_t seq_len = 256;
  std::int64_t vocab = 0;           ///< 0 = the tokenizer's; resolved after reading
  std::int64_t vocab_multiple = 0;  ///< 0 = 128 on GPU, 16 on CPU; resolved after reading
  double norm_eps = 1e-5;
  bool tied = false;
  bool qkv_bias = false;
  bool qk_norm = false;
  Activation activation = Activation::silu;
  Positions positions = Positions::rope;
  RopeConfig rope;
  double dropout = 0;
  double init_std = 0.02;
};

struct ParallelConfig {
  int tensor = 1;
  int pipeline = 1;
  int shard = 0;
  bool sequence = true;
  int zero = 1;
  RankOrder order = RankOrder::tp_dp_pp;
  std::vector<std::int64_t> stage_layers;
  bool count_embedding = false;
  bool count_head = false;
  std::int64_t prefetch = 50'000'000;
  std::int64_t persistence = 100'000;
  std::int64_t max_live = 1'000'000'000;
  std::int64_t bucket = 500'000'000;
  int exchange = 8;
  std::vector<std::string> whole_gradients;
};

struct ScheduleConfig {
  ScheduleKind kind = ScheduleKind::one_f_one_b;
  int chunks = 1;
  std::int64_t micro_batch = 4;    ///< sequences
  std::int64_t global_batch = 32;  ///< sequences
  Recompute recompute = Recompute::none;
  std::vector<std::string> recompute_modules = {"norm", "activation", "attention"};
};

struct PrecisionConfig {
  Compute compute = Compute::bf16;
  Storage16 gradients = Storage16::fp32;
  Storage16 reduce = Storage16::fp32;
  Storage16 moments = Storage16::fp32;
  LinearProducts linear = LinearProducts::compute;
  bool keep_fp8 = false;
};

struct OptimizerConfig {
  std::string kind = "adamw";
  double lr = 3e-4;
  double min_lr = 3e-5;
  LrSchedule schedule = LrSchedule::cosine;
  std::int64_t warmup_steps = 20;
  Warmup warmup = Warmup::linear;
  std::int64_t decay_steps = 0;
  std::int64_t final_decay_steps = 0;
  std::vector<double> betas = {0.9, 0.95};
  double eps = 1e-8;
  double weight_decay = 0.1;
  double clip = 1.0;
  std::int64_t max_skipped = 20;
};

/// One entry of data.train or data.valid; weight 0 means "not given".
struct DataSource {
  std::string prefix;
  double weight = 0;
};

/// `data.tokenizer` and `--tokenizer`: "bytes", a path, or a map.
struct TokenizerConfig {
  std::string file = "bytes";
  std::string pattern;
  std::vector<std::pair<std::string, std::int64_t>> special;
  std::string eod;
};

struct DataConfig {
  std::vector<DataSource> train;
  std::vector<DataSource> valid;
  std::string split = "98,2,0";
  std::int64_t samples = 0;
  std::int64_t seed = 0;
  SampleOrder order = SampleOrder::megatron;
  bool document_mask = false;
  bool mask_eod = false;
  bool mask_prompt = false;
  TokenizerConfig tokenizer;
  std::int64_t eval_every = 50;
  std::int64_t eval_batches = 8;
};

struct CheckpointConfig {
  std::string dir;
  std::int64_t every = 100;
  bool final = true;
  std::int64_t keep = 2;
  std::string resume = "auto";
  bool async = false;
  bool verify = true;
  std::int64_t max_failed = 3;
  std::vector<std::string> allow;
};

struct OutputConfig {
  std::int64_t log_every = 1;
  bool metrics = true;
};

struct Deck {
  RunConfig run;
  ModelConfig model;
  ParallelConfig parallel;
  ScheduleConfig schedule;
  PrecisionConfig precision;
  OptimizerConfig optimizer;
  DataConfig data;
  CheckpointConfig checkpoint;
  OutputConfig output;
};

}  // namespace llmtrain
