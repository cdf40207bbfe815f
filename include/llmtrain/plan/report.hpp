// SPDX-License-Identifier: Apache-2.0
/// A plan as text for people and as JSON for programs.
#pragma once

#include <string>

#include "llmtrain/plan/layout.hpp"

namespace llmtrain {

/// `name`: the deck's, for the first line.
std::string plan_text(const LayoutPlan& plan, const std::string& name);

/// One object, schema 1: {schema, layout, parameters, classes: [{name, ranks, memory: {params, master, moments, grads,
/// activations, comm, scratch, static, peak}}], collectives: [{axis, op, calls, bytes, ...}], step: {flops_a, flops_b,
/// seconds, bubble, ..., exposed: {total, tensor, pipeline, data, world}}, fits}. Bytes are of one rank; collectives those of
/// the class that sends most; exposed is what metrics.jsonl calls so.
std::string plan_json(const LayoutPlan& plan);

/// Changes of one key with which the layout fits, with the bytes they need; a line each, empty if none was found.
std::string remedies(const LayoutPlan& plan);

/// A line each on layers dealt to a pipeline's stages by time and on fp8 copies of weights that are kept, where that fits and
/// saves a hundredth of the step or more.
std::string faster(const LayoutPlan& plan);

}  // namespace llmtrain
