// SPDX-License-Identifier: Apache-2.0
/// DeepSpeed's optimizer and scheduler.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "deepspeed_settings.hpp"
#include "llmtrain/base/error.hpp"

namespace llmtrain::deepspeed {
namespace {

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

/// The schedules that keep DeepSpeed's name; `warmup_max_lr` is their peak where it is given or has a default.
struct Schedule {
  std::string_view name;
  std::string_view rule;
  double peak;  ///< default of warmup_max_lr; 0: the optimizer's lr
};

constexpr Schedule schedules[] = {
    {"warmuplr", "constant", 0}, {"warmupdecaylr", "linear", 1e-3}, {"warmupcosinelr", "cosine", 0}};

void set_warmup(const Translation& t) {
  const Settings& s = t.settings;
  constexpr std::string_view steps = "scheduler.params.warmup_num_steps", type = "scheduler.params.warmup_type";
  t.draft.set("optimizer.warmup_steps", std::max<std::int64_t>(s.integer(steps, 1000), 2), s.shown(steps));
  const std::string kind = s.text(type, "log");
  t.draft.set(
      "optimizer.warmup", std::string(kind == "linear" ? "linear" : "log"),
      s.shown(type) + (kind == "linear" || kind == "log" ? "" : ": DeepSpeed takes log for what it does not know"));
  t.remark("learning rate",
           "DeepSpeed's first two updates have the rate that the warm-up starts from, llmtrain's are the "
           "first two steps of it: llmtrain is two updates ahead");
}

/// Peak and final rate of a schedule.
void set_rates(const Translation& t, const Schedule& schedule) {
  const Settings& s = t.settings;
  constexpr std::string_view peak = "scheduler.params.warmup_max_lr", ratio = "scheduler.params.cos_min_ratio";
  double lr = s.real("optimizer.params.lr", 1e-3);
  const bool cosine = schedule.rule == "cosine";
  if (!cosine && (s.given(peak) || (schedule.peak > 0 && !s.automatic(peak)))) {
    const double top = s.real(peak, schedule.peak);
    if (top != lr) {
      t.remark(s.shown("optimizer.params.lr"), fmt::format("the scheduler's peak counts: {}", s.shown(peak)));
    }
    lr = top;
    t.draft.set("optimizer.lr", lr, s.shown(peak));
  }
  if (schedule.rule == "linear") t.draft.set("optimizer.min_lr", 0.0, "WarmupDecayLR ends at 0");
  if (cosine) t.draft.set("optimizer.min_lr", lr * s.real(ratio, 1e-4), s.shown(ratio) + ", times lr");
}

}  // namespace

void translate_optimizer(const Translation& t) {
  const Settings& s = t.settings;
  const std::string_view clip = s.which({"gradient_clipping", "optimizer.params.max_grad_norm"});
  t.draft.set("optimizer.clip", s.real(clip, 1.0),
              s.shown(clip) + (s.given(clip) ? "" : ": 1.0 since version 0.19, none before"));
  if (!s.any_below("optimizer.")) {
    return t.open("optimizer", "the file has none: the program makes it; set optimizer.lr, betas, eps, weight_decay");
  }
  const std::string type = lower(s.text("optimizer.type", ""));
  static constexpr std::string_view adams[] = {"adam", "adamw", "fusedadam", "cpuadam", "deepspeedcpuadam"};
  const bool adam = std::find(std::begin(adams), std::end(adams), type) != std::end(adams);
  t.draft.set("optimizer.kind", std::string("adamw"), s.shown("optimizer.type"));
  if (!adam) t.lacks(s.shown("optimizer.type"), "the deck says AdamW with the values that are given");
  constexpr std::string_view lr = "optimizer.params.lr", betas = "optimizer.params.betas", eps = "optimizer.params.eps",
                             decay = "optimizer.params.weight_decay";
  t.draft.set("optimizer.lr", s.real(lr, 1e-3), s.shown(lr));
  std::vector<std::string> pair = s.items(betas).empty() ? std::vector<std::string>{"0.9", "0.999"} : s.items(betas);
  require(pair.size() == 2, ExitCode::bad_input, "{}: two numbers are needed", s.shown(betas));
  t.draft.set("optimizer.betas",
              fmt::format("[{}, {}]", real_number(pair[0], s.shown(betas)), real_number(pair[1], s.shown(betas))),
              s.shown(betas));
  t.draft.set("optimizer.eps", s.real(eps, 1e-8), s.shown(eps));
  const double weight_decay = s.real(decay, 0);
  t.draft.set("optimizer.weight_decay", weight_decay, s.shown(decay));
  const bool coupled = type == "adam" && !s.truth("optimizer.params.adam_w_mode", true);
  if (coupled && weight_decay != 0) {
    t.lacks(s.shown("optimizer.params.adam_w_mode"), "weight decay as a part of the gradient: AdamW's is decoupled");
  }
  if (weight_decay != 0) {
    t.remark(s.shown(decay), "llmtrain decays matrices only; DeepSpeed decays what the program's groups say");
  }
}

void translate_scheduler(Translation& t) {
  const Settings& s = t.settings;
  const std::string type = s.text("scheduler.type", "");
  constexpr std::string_view total = "scheduler.params.total_num_steps";
  t.steps = s.integer(total, 0);
  if (t.steps > 0) t.draft.set("run.steps", t.steps, s.shown(total));
  const std::string folded = lower(type);
  const auto row =
      std::find_if(std::begin(schedules), std::end(schedules), [&](const Schedule& r) { return r.name == folded; });
  if (row == std::end(schedules)) {
    t.draft.set("optimizer.schedule", std::string("constant"), s.shown("scheduler.type"));
    t.draft.set("optimizer.warmup_steps", std::int64_t{0}, s.shown("scheduler.type"));
    if (!type.empty()) t.lacks(s.shown("scheduler.type"), "the deck has a constant learning rate");
    if (type.empty()) t.open("scheduler", "the file has none: without one from the program the rate is constant");
    return;
  }
  t.draft.set("optimizer.schedule", std::string(row->rule), s.shown("scheduler.type"));
  set_warmup(t);
  set_rates(t, *row);
}

}  // namespace llmtrain::deepspeed
