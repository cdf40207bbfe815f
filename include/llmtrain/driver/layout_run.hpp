// SPDX-License-Identifier: Apache-2.0
/// The first steps of one layout and what they gave, whole; so that layouts can be compared.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "llmtrain/data/dataset.hpp"
#include "llmtrain/data/loader.hpp"
#include "llmtrain/driver/gather.hpp"
#include "llmtrain/driver/parts.hpp"

namespace llmtrain {

/// One section of the model, in true global shape, row-major.
struct SectionValues {
  std::string name;
  std::vector<double> values;
};

/// Numbers of each step, and the mean loss of the first one's data with the weights after the last.
struct StepNumbers {
  std::vector<double> loss, gradient_norm, lr;
  double evaluation = 0;
};

/// What a layout computed. Sections are kept on rank 0 only, the rest is known to all ranks.
struct LayoutNumbers : StepNumbers {
  std::string layout;  ///< e.g. "4 ranks: tensor 2, pipeline 1, data 2 (ZeRO-1)"
  Compute compute = Compute::fp32;
  LinearProducts linear = LinearProducts::compute;
  double adam_eps = 0;
  std::vector<std::string> initial;       ///< digest of each section's weights before step 1
  std::vector<SectionValues> gradients;   ///< of step 1's mean loss, before clipping
  std::vector<SectionValues> parameters;  ///< weights after the last step
};

/// A part of a run that does not begin at its beginning.
struct RunPart {
  std::int64_t first = 0;             ///< updates that the state has had; steps are counted on from there
  std::function<void(Parts&)> begin;  ///< sets the state; none: initial weights
  std::function<void(Parts&)> end;    ///< called with the state after the last step
};

/// A layout to run; the deck must be resolved.
struct LayoutRun {
  const Deck& deck;
  const Place& place;
  Device& device;
  std::shared_ptr<const Dataset> data;
  std::int32_t masked_token = LoaderShape::no_token;
  RunPart part = {};
};

/// Who looks at the sections of a run, whole on every rank; in this order.
struct SectionVisitors {
  VisitSection initial;     ///< weights before the first step
  VisitSection gradients;   ///< of the first step's mean loss, before clipping
  VisitSection parameters;  ///< weights after the last step
};

/// As run_layout(), for those who do not keep whole models.
StepNumbers run_steps(const LayoutRun& run, std::int64_t steps, const SectionVisitors& visit);

/// Runs `steps` steps from the initial weights, or as `part` says, and evaluates. What the numbers say of step 1 is of the
/// first of these steps. Throws AgreedError(comparison_failed) where ranks of
/// the layout hold different copies of an element (driver/gather.hpp). Collective over the place's world.
LayoutNumbers run_layout(const LayoutRun& run, std::int64_t steps);

/// One line: ranks, axes, ZeRO, schedule.
std::string layout_text(const Deck& deck, const Topology& topology);

}  // namespace llmtrain
