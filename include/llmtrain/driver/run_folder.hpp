// SPDX-License-Identifier: Apache-2.0
/// The folder of a run: deck.yaml, metrics.jsonl, log.txt, checkpoints/, products.txt with run.deterministic on a GPU, and
/// hang.json after a hang.
#pragma once

#include <cstdint>
#include <string>

#include "llmtrain/base/log.hpp"
#include "llmtrain/driver/launch.hpp"

namespace llmtrain {

/// Paths of a run's files.
struct RunFolder {
  std::string dir;
  std::string deck() const { return dir + "/deck.yaml"; }
  std::string metrics() const { return dir + "/metrics.jsonl"; }
  std::string log() const { return dir + "/log.txt"; }
  std::string products() const { return dir + "/products.txt"; }  ///< driver/tuning.hpp
  std::string hang() const { return dir + "/hang.json"; }         ///< driver/watchdog.hpp
  /// Where ranks ask each other, of a start that is known by `token`.
  std::string standings(const std::string& token) const { return dir + "/standings-" + token; }
};

/// Which of a run's folders to lock.
enum class Folders { existing, all };

/// Locks the run's folder, and the checkpoints' if it lies elsewhere, where this run has not yet (73 while another run is
/// alive in one). Collective over the world.
void lock_folders(Launch& launch, Folders which);

/// Makes the folder and its checkpoint folder, locks them, and proves that they can be written and, where `bytes` says
/// how large a checkpoint is on all ranks together, that one fits (73, 74). A fresh start in a folder that
/// holds another run, or with resume: never any run, is refused (73) unless run.overwrite, which then empties it.
/// Collective over the world.
RunFolder prepare_run_folder(Launch& launch, std::int64_t bytes);

/// Writes deck.yaml and begins or goes on with log.txt, once the run has what it starts from: a checkpoint that turns out
/// to be damaged changes nothing. Collective over the world.
void enter_run_folder(const RunFolder& folder, const Launch& launch, Logger& log);

}  // namespace llmtrain
