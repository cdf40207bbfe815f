// SPDX-License-Identifier: Apache-2.0
/// Whole sections of a layout, put together from the ranks that hold their parts; for dumps and comparisons.
#pragma once

#include <functional>
#include <span>

#include "llmtrain/driver/parts.hpp"

namespace llmtrain {

/// Called on every rank with a section and its values in true global shape, row-major.
using VisitSection = std::function<void(const Section& section, std::span<const double> values)>;

// Each section of the model once, in the order of the table, one lease in memory at a time. Both throw an AgreedError
// (comparison_failed) if ranks that hold the same element differ in a bit of it, or if not exactly one rank owns it.
// Collective over the world.

/// The weights that layers compute with: of precision.compute bf16, the rounded ones.
void visit_weights(Parts& parts, const VisitSection& visit);
/// The reduced gradient, times `scale`; after run_gradients.
void visit_gradients(Parts& parts, double scale, const VisitSection& visit);

}  // namespace llmtrain
