// SPDX-License-Identifier: Apache-2.0
/// Megatron-LM's arguments of batches, steps, recompute, optimizer, learning rate and precision.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "llmtrain/base/error.hpp"
#include "megatron_arguments.hpp"

namespace llmtrain::megatron {
namespace {

/// A number of steps that may be given in steps or in samples.
struct Steps {
  std::int64_t value = 0;
  std::string note;
  bool given = false;
};

Steps steps_from(const Translation& t, std::string_view iterations, std::string_view samples) {
  if (t.args.given(samples)) {
    return {t.steps_of(samples), fmt::format("{} / {} a step", t.args.shown(samples), t.global_batch), true};
  }
  return {t.args.integer(iterations, 0), t.args.shown(iterations), t.args.given(iterations)};
}

std::vector<std::string> split_at_commas(const std::vector<std::string>& words) {
  std::vector<std::string> out;
  for (const std::string& word : words) {
    for (std::size_t begin = 0; begin <= word.size();) {
      const std::size_t end = std::min({word.find(',', begin), word.find(' ', begin), word.size()});
      if (end > begin) out.push_back(word.substr(begin, end - begin));
      begin = end + 1;
    }
  }
  return out;
}

void translate_modules(const Translation& t) {
  const std::vector<std::string>& words = t.args.words("recompute-modules");
  const std::vector<std::string> names = words.empty() ? std::vector<std::string>{"core_attn"} : split_at_commas(words);
  if (names != words && !words.empty()) {
    t.draft.note({Fate::unknown, "recompute-modules", t.args.shown("recompute-modules"),
                  fmt::format("Megatron takes the names apart at spaces only and knows none of this form; read as "
                              "--recompute-modules {}",
                              fmt::join(names, " "))});
  }
  static constexpr std::pair<std::string_view, std::string_view> modules[] = {
      {"core_attn", "attention"}, {"mlp", "mlp"}, {"layernorm", "norm"}};
  std::vector<std::string_view> found;
  for (const std::string& name : names) {
    const auto row =
        std::find_if(std::begin(modules), std::end(modules), [&](const auto& m) { return m.first == name; });
    if (row == std::end(modules)) {
      t.lacks("--recompute-modules " + name, "llmtrain has norm, activation, attention and mlp");
    } else if (std::find(found.begin(), found.end(), row->second) == found.end()) {
      found.push_back(row->second);
    }
  }
  if (found.empty()) return t.draft.set("schedule.recompute", std::string("none"), "no module of llmtrain is named");
  t.draft.set("schedule.recompute_modules", fmt::format("[{}]", fmt::join(found, ", ")),
              t.args.shown("recompute-modules"));
}

void translate_recompute(const Translation& t) {
  const Arguments& args = t.args;
  const std::string granularity = args.text("recompute-granularity", "");
  const bool selective = granularity == "selective" || args.given("recompute-activations");
  const bool full = granularity == "full" || args.given("checkpoint-activations");
  const std::string_view name =
      args.which({"recompute-granularity", "recompute-activations", "checkpoint-activations"});
  t.draft.set("schedule.recompute", std::string(selective ? "selective" : full ? "block" : "none"), args.shown(name));
  if (!selective && !full && !granularity.empty()) t.lacks(args.shown(name), "no such granularity");
  if (selective) translate_modules(t);
  const std::int64_t layers = args.integer("recompute-num-layers", 1);
  if (!full || layers == 1) return;
  if (args.text("recompute-method", "") == "block") {
    t.lacks(args.shown("recompute-num-layers"),
            fmt::format("recomputing only {} layers of each stage: all of them are, which costs time", layers));
  } else {
    t.lacks(
        args.shown("recompute-num-layers"),
        fmt::format("recomputing {} layers from one saved input: each block is by itself, which costs memory", layers));
  }
}

void translate_warmup(const Translation& t, std::int64_t horizon) {
  const Arguments& args = t.args;
  Steps warmup = steps_from(t, "lr-warmup-iters", "lr-warmup-samples");
  if (args.given("lr-warmup-fraction")) {
    const double share = args.real("lr-warmup-fraction", 0);
    warmup = {std::llround(share * static_cast<double>(horizon)),
              fmt::format("{} of {} steps", args.shown("lr-warmup-fraction"), horizon), true};
  }
  t.draft.set("optimizer.warmup_steps", warmup.value, warmup.note);
  t.draft.set("optimizer.warmup", std::string("linear"), "Megatron's only one");
  t.remark("learning rate",
           "Megatron's first update has the rate of step 0, llmtrain's that of step 1: llmtrain is one "
           "update ahead");
}

void translate_rate(const Translation& t) {
  const Arguments& args = t.args;
  if (!args.given("lr")) t.open("--lr", "the peak learning rate (optimizer.lr)");
  const Steps decay = steps_from(t, "lr-decay-iters", "lr-decay-samples");
  if (decay.given) t.draft.set("optimizer.decay_steps", decay.value, decay.note);
  translate_warmup(t, decay.given ? decay.value : t.steps);
  const std::string style = args.text("lr-decay-style", "linear");
  const bool wsd = style == "WSD";
  const bool known = wsd || style == "constant" || style == "linear" || style == "cosine";
  t.draft.set("optimizer.schedule", std::string(wsd ? "wsd" : known ? style : "cosine"), args.shown("lr-decay-style"));
  if (!known) t.lacks(args.shown("lr-decay-style"), "the deck says cosine, with the same warm-up, horizon and min_lr");
  if (!wsd) return;
  const Steps last = steps_from(t, "lr-wsd-decay-iters", "lr-wsd-decay-samples");
  if (last.given) t.draft.set("optimizer.final_decay_steps", last.value, last.note);
  if (!last.given) t.open("--lr-wsd-decay-iters", "the length of the last decay (a tenth of the horizon)");
  const std::string form = args.text("lr-wsd-decay-style", "exponential");
  if (form != "linear") {
    t.lacks(args.shown("lr-wsd-decay-style"), fmt::format("a last decay that is {}: llmtrain's is linear", form));
  }
}

/// How long ranks wait for each other in vain; what is asked for after the start holds for longer.
void translate_patience(const Translation& t) {
  for (const auto& [name, seconds] : {std::pair<std::string_view, std::int64_t>{"distributed-timeout-minutes", 60},
                                      {"distributed-timeout-seconds-after-init", 1}}) {
    if (t.args.given(name)) t.draft.set("run.hang_timeout", t.args.integer(name, 0) * seconds, t.args.shown(name));
  }
}

}  // namespace

void translate_batches(Translation& t) {
  const Arguments& args = t.args;
  const std::string_view micro = args.which({"micro-batch-size", "batch-size"});
  const std::int64_t micro_batch = args.integer(micro, 0);
  if (micro_batch == 0)
    t.open("--micro-batch-size", "sequences that go through a model at once (schedule.micro_batch)");
  if (micro_batch > 0) t.draft.set("schedule.micro_batch", micro_batch, args.shown(micro));
  t.global_batch = args.integer("global-batch-size", 0);
  std::string note = args.shown("global-batch-size");
  if (t.global_batch == 0) {
    const std::int64_t data = t.data_ranks();
    require(
        data > 0, ExitCode::usage,
        "--global-batch-size is absent, and Megatron then takes --micro-batch-size times the data-parallel ranks: say "
        "how many ranks there are with --ranks N");
    t.global_batch = std::max<std::int64_t>(micro_batch, 1) * data;
    note += fmt::format(": {} x {} data ranks", std::max<std::int64_t>(micro_batch, 1), data);
  }
  require(t.global_batch > 0, ExitCode::bad_input, "{}: a positive number is needed", args.shown("global-batch-size"));
  t.draft.set("schedule.global_batch", t.global_batch, note);
  const Steps steps = steps_from(t, "train-iters", "train-samples");
  t.steps = steps.value;
  if (steps.given) t.draft.set("run.steps", steps.value, steps.note);
  if (!steps.given) t.open("--train-iters", "the number of steps (run.steps)");
  const std::int64_t exit_at = args.integer("exit-interval", 0);
  if (exit_at > 0 && (exit_at <= t.steps || t.steps == 0)) {
    t.draft.set("run.stop_after", exit_at, args.shown("exit-interval") + ", in a first job; raise it for the next");
  }
  const std::int64_t minutes = args.integer("exit-duration-in-mins", 0);
  if (minutes > 0 && args.given("save")) {
    t.draft.set("run.max_walltime", minutes * 60, args.shown("exit-duration-in-mins"));
  } else if (minutes > 0) {
    t.lacks(args.shown("exit-duration-in-mins"),
            "leaving without a checkpoint (--save absent): run.max_walltime saves");
  }
  translate_patience(t);
}

void translate_schedule(const Translation& t) { translate_recompute(t); }

void translate_optimizer(const Translation& t) {
  const Arguments& args = t.args;
  const std::string kind = args.text("optimizer", "adam");
  t.draft.set("optimizer.kind", std::string("adamw"),
              args.shown("optimizer") + (kind == "adam" ? ": its weight decay is decoupled too" : ""));
  if (kind != "adam") t.lacks(args.shown("optimizer"), "the deck says AdamW, with Megatron's Adam values");
  const std::string_view beta = args.which({"adam-beta2", "adam-beta1"});
  t.draft.set("optimizer.betas", fmt::format("[{}, {}]", args.real("adam-beta1", 0.9), args.real("adam-beta2", 0.999)),
              args.shown(beta));
  const double start = args.real("start-weight-decay", args.real("weight-decay", 0.01));
  const double end = args.real("end-weight-decay", start);
  const std::string_view decay = args.given("end-weight-decay") ? "end-weight-decay" : "weight-decay";
  t.draft.set("optimizer.weight_decay", end, args.shown(decay));
  if (start != end) t.lacks(args.shown("start-weight-decay"), "weight decay that changes: the deck has its last value");
  translate_rate(t);
}

namespace {

void translate_fp8(const Translation& t, bool half) {
  const Arguments& args = t.args;
  const std::string_view name = args.which({"fp8-format", "fp8", "fp8-hybrid", "fp8-e4m3"});
  if (!args.given(name)) return;
  if (!half) return t.lacks(args.shown(name), "fp8 beside parameters in fp32: the deck says fp32");
  t.draft.set("precision.linear", std::string("fp8"), args.shown(name));
  const std::string_view keep = "keep-fp8-transpose-cache";
  if (args.given(keep)) t.draft.set("precision.keep_fp8", std::string("true"), args.shown(keep));
  if (name == "fp8-e4m3" || (name != "fp8-hybrid" && args.text(name, "") == "e4m3")) {
    t.lacks(args.shown(name), "gradients in E4M3: the deck has them in E5M2, as hybrid does");
  }
  if (args.text("fp8-recipe", "delayed") != "tensorwise") {
    t.lacks(args.shown("fp8-recipe"), "other scales: the deck has tensorwise ones, of each matrix's largest element");
  }
}

}  // namespace

void translate_precision(const Translation& t) {
  const Arguments& args = t.args;
  const bool half = args.given("bf16") || args.given("fp16");
  const std::string_view name = args.which({"bf16", "fp16"});
  t.draft.set("precision.compute", std::string(half ? "bf16" : "fp32"),
              args.shown(name) + (half ? "" : ": parameters are fp32"));
  translate_fp8(t, half);
  const bool reduce = args.given("grad-reduce-in-bf16");
  const bool main = args.text("main-grads-dtype", "fp32") == "bf16";
  const std::string_view why =
      args.which({"grad-reduce-in-bf16", "main-grads-dtype", "accumulate-allreduce-grads-in-fp32"});
  const auto format = [](bool is_half) { return std::string(is_half ? "bf16" : "fp32"); };
  t.draft.set("precision.gradients", format(half && (reduce || main)), args.shown(why));
  t.draft.set("precision.reduce", format(half && (reduce || main)), args.shown(why));
  const std::string first = args.text("exp-avg-dtype", "fp32");
  const std::string second = args.text("exp-avg-sq-dtype", "fp32");
  const bool moments = first == "bf16" && second == "bf16";
  t.draft.set("precision.moments", format(moments), args.shown("exp-avg-dtype"));
  if (!moments && (first != "fp32" || second != "fp32")) {
    t.lacks(fmt::format("--exp-avg-dtype {} --exp-avg-sq-dtype {}", first, second),
            "both moments have one format, fp32 or bf16; the deck says fp32");
  }
}

}  // namespace llmtrain::megatron
