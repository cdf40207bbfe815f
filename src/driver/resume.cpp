// SPDX-License-Identifier: Apache-2.0
/// Comparison of decks key by key, from their declarations.
#include "llmtrain/driver/resume.hpp"

#include <algorithm>
#include <array>

#include "llmtrain/base/error.hpp"
#include "llmtrain/config/key.hpp"

namespace llmtrain {

namespace {

/// Keys, or whole blocks, that describe how a run is executed and not what it computes.
constexpr std::array<std::string_view, 23> may_differ = {"parallel",           "output",
                                                         "checkpoint",         "schedule.kind",
                                                         "schedule.chunks",    "schedule.micro_batch",
                                                         "schedule.recompute", "schedule.recompute_modules",
                                                         "run.name",           "run.steps",
                                                         "run.stop_after",     "run.max_walltime",
                                                         "run.hang_timeout",   "run.device",
                                                         "run.threads",        "run.dir",
                                                         "run.share_gpu",      "run.deterministic",
                                                         "run.overwrite",      "model.vocab_multiple",
                                                         "precision.keep_fp8", "optimizer.lr",
                                                         "optimizer.min_lr"};
constexpr std::array<std::string_view, 3> data_may_differ = {"data.eval_every", "data.eval_batches", "data.valid"};

bool covers(std::string_view name, std::string_view key) {
  return key == name || (key.starts_with(name) && key[name.size()] == '.');
}

}  // namespace

bool is_allowed(std::string_view key, const Deck& now) {
  const auto covered = [&](const auto& names) {
    return std::any_of(names.begin(), names.end(), [&](std::string_view name) { return covers(name, key); });
  };
  return covered(may_differ) || covered(data_may_differ) || covered(now.checkpoint.allow);
}

std::vector<KeyChange> key_changes(const Deck& stored, const Deck& now) {
  std::vector<KeyChange> changes;
  for (const Block& block : deck_blocks()) {
    for (const Key& key : block.keys) {
      std::string before = format_value(key, stored);
      std::string after = format_value(key, now);
      if (before == after || !key.facts.in_checkpoint) continue;
      changes.push_back({key.path, std::move(before), std::move(after), is_allowed(key.path, now)});
    }
  }
  return changes;
}

void require_allowed(const std::vector<KeyChange>& changes, const std::string& checkpoint) {
  std::string table;
  for (const KeyChange& change : changes) {
    if (change.allowed) continue;
    table += fmt::format("\n  {:<28} stored {:<24} now {}", change.key, change.stored, change.now);
  }
  require(table.empty(), ExitCode::checkpoint_incompatible,
          "{} was written by another run; these keys differ:{}\n"
          "restore them, choose another run.dir, or list the intended ones in checkpoint.allow",
          checkpoint, table);
}

}  // namespace llmtrain
