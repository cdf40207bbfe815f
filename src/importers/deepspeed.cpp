// SPDX-License-Identifier: Apache-2.0
/// From a DeepSpeed file to a deck: batches, ZeRO, precision and what is left; optimizer and scheduler stand apart.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "deepspeed_settings.hpp"
#include "llmtrain/base/error.hpp"
#include "llmtrain/config/dump.hpp"
#include "llmtrain/config/read.hpp"

namespace llmtrain {
namespace deepspeed {
namespace {

/// Ranks that share one replica of the model, by the file.
std::int64_t model_ranks(const Translation& t) {
  const Settings& s = t.settings;
  const std::string stages = s.text("pipeline.stages", "1");
  const std::int64_t pipeline = stages == "auto" ? 1 : s.integer("pipeline.stages", 1);
  const std::string_view tensor =
      s.which({"tensor_parallel.autotp_size", "tensor_parallel.tensor_parallel.tp_size", "tensor_parallel.tp.tp_size"});
  return std::max<std::int64_t>(s.integer(tensor, 1), 1) * std::max<std::int64_t>(pipeline, 1) *
         std::max<std::int64_t>(s.integer("sequence_parallel_size", 1), 1);
}

/// DeepSpeed's rule: train_batch_size = micro-batch x accumulation x data-parallel ranks, any two give the third.
struct Batches {
  std::int64_t train, micro, accumulation;

  void complete(std::int64_t data) {
    if (micro == 0 && train > 0) micro = train / data / std::max<std::int64_t>(accumulation, 1);
    if (train == 0 && micro > 0) train = micro * std::max<std::int64_t>(accumulation, 1) * data;
  }
};

}  // namespace

void translate_batches(const Translation& t) {
  const Settings& s = t.settings;
  constexpr std::string_view train = "train_batch_size", micro = "train_micro_batch_size_per_gpu",
                             accumulation = "gradient_accumulation_steps";
  Batches batches{s.integer(train, 0), s.integer(micro, 0), s.integer(accumulation, 0)};
  const Batches given = batches;
  if (given.train == 0 && given.micro == 0) {
    if (!s.automatic(train) && !s.automatic(micro)) {
      t.open(std::string(micro), "neither it nor train_batch_size is there (schedule.micro_batch, global_batch)");
    }
    return;
  }
  const std::int64_t data = t.ranks / model_ranks(t);
  require(given.train >= 0 && given.micro >= 0 && given.accumulation >= 0, ExitCode::bad_input,
          "{}, {}, {}: they must be positive", s.shown(train), s.shown(micro), s.shown(accumulation));
  const bool both = given.train > 0 && given.micro > 0;
  require(
      both || data > 0, ExitCode::usage,
      "train_batch_size = train_micro_batch_size_per_gpu x gradient_accumulation_steps x data-parallel ranks, and the "
      "file leaves two of them open ({} is there): say how many ranks there are with --ranks N",
      given.train > 0 ? train : micro);
  if (both && given.accumulation > 0 && data > 0) {
    require(given.train == given.micro * given.accumulation * data, ExitCode::bad_input,
            "train_batch_size {} is not train_micro_batch_size_per_gpu {} x gradient_accumulation_steps {} x {} "
            "data-parallel ranks = {}, as DeepSpeed demands",
            given.train, given.micro, given.accumulation, data, given.micro * given.accumulation * data);
  }
  batches.complete(data);
  require(batches.micro > 0, ExitCode::bad_input, "{}: {} data-parallel ranks leave no sequence for a micro-batch",
          s.shown(train), data);
  const auto note = [&](std::string_view name) {
    return s.given(name) ? s.shown(name) : fmt::format("train_batch_size rule with {} data-parallel ranks", data);
  };
  t.draft.set("schedule.micro_batch", batches.micro, note(micro));
  t.draft.set("schedule.global_batch", batches.train, note(train));
  if (both && given.accumulation > 0 && data == 0) {
    t.remark(s.shown(accumulation), fmt::format("holds on {} data-parallel ranks; another number accumulates otherwise",
                                                given.train / (given.micro * given.accumulation)));
  }
}

namespace {

/// A size that Transformers' Trainer derives from the width where the file says "auto".
void set_size(const Translation& t, std::string_view key, std::initializer_list<std::string_view> names,
              std::int64_t fallback, double from_hidden, int power) {
  const Settings& s = t.settings;
  const std::string_view name = s.which(names);
  const bool automatic = std::any_of(names.begin(), names.end(), [&](auto n) { return s.automatic(n); });
  if (!s.given(name) && automatic && t.hidden > 0) {
    const auto hidden = static_cast<double>(t.hidden);
    const auto size = static_cast<std::int64_t>(from_hidden * (power == 2 ? hidden * hidden : hidden));
    return t.draft.set(
        key, size,
        fmt::format("auto: {} hidden{} as Transformers' Trainer", from_hidden, power == 2 ? " x hidden" : ""));
  }
  t.draft.set(key, s.integer(name, fallback), s.given(name) || !automatic ? s.shown(name) : "DeepSpeed's default");
}

}  // namespace

void translate_zero(const Translation& t) {
  const Settings& s = t.settings;
  const bool old = s.given("zero_optimization");  // true or false
  const std::string_view name = old ? "zero_optimization" : "zero_optimization.stage";
  const std::int64_t stage = old ? (s.truth(name, false) ? 1 : 0) : s.integer(name, 0);
  t.draft.set("parallel.zero", stage, s.shown(name));
  if (stage > 0) {
    const std::string_view bucket =
        s.which({"zero_optimization.reduce_bucket_size", "zero_optimization.allgather_bucket_size", "allgather_size"});
    set_size(t, "parallel.bucket", {bucket}, 500'000'000, 1, 2);
    const std::int64_t other = s.integer("zero_optimization.allgather_bucket_size", s.integer(bucket, 0));
    if (s.given(bucket) && other != s.integer(bucket, 0)) {
      t.lacks(s.shown("zero_optimization.allgather_bucket_size"),
              "another size for gathers than for reductions: parallel.bucket has that of reductions");
    }
  }
  if (stage == 3) {
    set_size(t, "parallel.prefetch",
             {"zero_optimization.stage3_prefetch_bucket_size", "zero_optimization.prefetch_bucket_size"}, 50'000'000,
             0.9, 2);
    set_size(t, "parallel.persistence",
             {"zero_optimization.stage3_param_persistence_threshold", "zero_optimization.param_persistence_threshold"},
             100'000, 10, 1);
    const std::string_view live =
        s.which({"zero_optimization.stage3_max_live_parameters", "zero_optimization.max_live_parameters"});
    t.draft.set("parallel.max_live", std::max<std::int64_t>(s.integer(live, 1'000'000'000), 1), s.shown(live));
  }
  if (s.integer("zero_optimization.mics_shard_size", -1) > 0) {
    t.draft.set("parallel.shard", s.integer("zero_optimization.mics_shard_size", 0),
                s.shown("zero_optimization.mics_shard_size"));
  }
}

void translate_precision(const Translation& t) {
  const Settings& s = t.settings;
  const std::string_view bf16 = s.which({"bf16.enabled", "bfloat16.enabled"});
  const bool half = s.truth("fp16.enabled", false);
  const bool autocast = s.truth("torch_autocast.enabled", false);
  const bool automatic = s.automatic("bf16.enabled") || s.automatic("fp16.enabled");
  const bool bits16 = s.truth(bf16, false) || half || autocast || automatic;
  const std::string_view why = s.truth(bf16, false) || !bits16 ? bf16
                               : half                          ? "fp16.enabled"
                               : autocast                      ? "torch_autocast.enabled"
                                                               : "bf16.enabled";
  t.draft.set("precision.compute", std::string(bits16 ? "bf16" : "fp32"), s.shown(why));
  if (half) {
    t.lacks(s.shown("fp16.enabled"), "fp16: the deck says bf16, which has fp32's range and needs no loss scale");
  }
  const std::string own = bits16 && !autocast ? "bf16" : "fp32";  // under autocast parameters and gradients are fp32
  const auto set = [&](const char* key, std::string_view name) {
    std::string value = s.text(name, own);
    if (value == "fp16") t.lacks(s.shown(name), "fp16: the deck says bf16");
    const bool is_half = value == "fp16" || value == "bf16" || value == "bfloat16";
    t.draft.set(
        key, std::string(is_half ? "bf16" : "fp32"),
        s.given(name) ? s.shown(name) : fmt::format("DeepSpeed's default: the parameters' type ({} absent)", name));
  };
  set("precision.gradients", "data_types.grad_accum_dtype");
  set("precision.reduce", "communication_data_type");
  const std::string_view moments = s.which({"bf16.bf16_optimizer_states", "bfloat16.bf16_optimizer_states"});
  t.draft.set("precision.moments", std::string(s.truth(moments, false) ? "bf16" : "fp32"), s.shown(moments));
}

void translate_rest(const Translation& t) {
  const Settings& s = t.settings;
  constexpr std::string_view section = "activation_checkpointing.";
  const bool tuned = s.any_below(section);
  const bool piped = s.integer("pipeline.activation_checkpoint_interval", 0) > 0;
  t.draft.set("schedule.recompute", std::string(tuned || piped ? "block" : "none"),
              tuned   ? "activation_checkpointing is there"
              : piped ? s.shown("pipeline.activation_checkpoint_interval")
                      : "activation_checkpointing is absent");
  if (tuned) {
    t.remark(
        "activation_checkpointing",
        "DeepSpeed's section only tunes what the model's own code asks for; taken for a checkpoint at every layer");
  }
  if (s.given("steps_per_print")) {
    t.draft.set("output.log_every", std::clamp<std::int64_t>(s.integer("steps_per_print", 1), 1, 1'000'000'000),
                s.shown("steps_per_print"));
  }
  const std::string_view tensor =
      s.which({"tensor_parallel.autotp_size", "tensor_parallel.tensor_parallel.tp_size", "tensor_parallel.tp.tp_size"});
  t.draft.set("parallel.tensor", std::max<std::int64_t>(s.integer(tensor, 1), 1), s.shown(tensor));
  const bool stages = s.given("pipeline.stages");
  t.draft.set("parallel.pipeline", stages ? std::max<std::int64_t>(s.integer("pipeline.stages", 1), 1) : 1,
              s.shown("pipeline.stages"));
  t.open("model", "the file has no model: set model.preset or its sizes (model.*), with the model's own dropout");
  t.open("data", "the file has no data: set data.train, data.tokenizer and when to evaluate (data.eval_every)");
  t.open("checkpoints", "DeepSpeed saves when the program calls it: checkpoint.every says when llmtrain does");
  if (t.steps == 0) t.open("run.steps", "the file has no number of steps");
}

}  // namespace deepspeed

DeckDraft import_deepspeed(std::string_view json, const std::string& name, const ImportOptions& options) {
  DeckDraft draft("deepspeed from " + name);
  const bool model = std::any_of(options.overrides.begin(), options.overrides.end(),
                                 [](const std::string& text) { return text.starts_with("model."); });
  const std::int64_t hidden = model ? parse_deck("model: {}", name, options.overrides).model.hidden : 0;
  const deepspeed::Settings settings(json, name, model, draft);
  const std::string stem = std::filesystem::path(name).stem().string();
  draft.set("run.name", quote_yaml(stem), "");
  draft.set("run.dir", quote_yaml("runs/" + stem), "");
  deepspeed::Translation t{draft, settings, options.ranks, hidden};
  deepspeed::translate_batches(t);
  deepspeed::translate_zero(t);
  deepspeed::translate_precision(t);
  deepspeed::translate_optimizer(t);
  deepspeed::translate_scheduler(t);
  deepspeed::translate_rest(t);
  apply_overrides(draft, options.overrides);
  return draft;
}

}  // namespace llmtrain
