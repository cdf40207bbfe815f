// SPDX-License-Identifier: Apache-2.0
/// The folder of a run: deck.yaml, metrics.jsonl, log.txt, checkpoints/.
#pragma once

#include <string>

#include "llmtrain/driver/launch.hpp"

namespace llmtrain {

/// Paths of a run's files.
struct RunFolder {
  std::string dir;
  std::string deck() const { return dir + "/deck.yaml"; }
  std::string metrics() const { return dir + "/metrics.jsonl"; }
  std::string log() const { return dir + "/log.txt"; }
};

/// Makes the folder and its checkpoint folder and proves that they can be written (73). A fresh start in a folder that
/// holds another run, or with resume: never any run, is refused (73) unless run.overwrite, which then empties it.
/// Writes deck.yaml. Collective over the world.
RunFolder prepare_run_folder(const Launch& launch);

}  // namespace llmtrain
