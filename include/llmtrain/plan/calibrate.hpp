// SPDX-License-Identifier: Apache-2.0
/// The constants of the time model, measured on the machine at hand, and how well they predict decks they were not made
/// from.
#pragma once

#include <string>
#include <vector>

#include "llmtrain/backend/device.hpp"
#include "llmtrain/config/hardware.hpp"

namespace llmtrain {

/// A step predicted and measured.
struct StepCheck {
  std::string deck;
  int ranks = 1;
  double predicted = 0, measured = 0;  ///< seconds
};

struct Calibration {
  Hardware hardware;
  std::vector<StepCheck> checks;
};

/// Measures operations in steps of small models on every rank at once, and collectives over all ranks; then predicts and
/// measures other models. What is measured of a step is the sum of its operations' fastest times over `repeats` steps, so
/// that a busy machine disturbs less. Collective over the world; a device that executes at once (CPU) is needed.
Calibration calibrate(const MpiComm& world, Device& device, const std::string& name, int repeats);

}  // namespace llmtrain
