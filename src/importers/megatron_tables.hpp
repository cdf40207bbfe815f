// SPDX-License-Identifier: Apache-2.0
/// The pieces of the table of Megatron-LM's arguments, and of the misspelt ones that recipes are full of.
#pragma once

#include <span>
#include <string_view>

#include "llmtrain/importers/importers.hpp"

namespace llmtrain::megatron {

std::span<const ImportRow> model_rows();     ///< sizes, positions, norms, initial weights, precision
std::span<const ImportRow> training_rows();  ///< batches, recompute, learning rate, regularization, data, evaluation
std::span<const ImportRow> system_rows();    ///< parallelism, communication, checkpoints, logs
std::span<const ImportRow> other_rows();     ///< what belongs to other models and programs

/// An argument that Megatron-LM does not have but that is met.
struct Misspelt {
  std::string_view name;
  std::string_view real;   ///< the nearest real argument, without "--"
  std::string_view value;  ///< that it is read with, if it takes one and none is given
  bool read;               ///< taken for `real`
  std::string_view text;
};

std::span<const Misspelt> misspelt();

}  // namespace llmtrain::megatron
