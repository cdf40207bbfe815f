// SPDX-License-Identifier: Apache-2.0
/// The pieces of the table of DeepSpeed's keys.
#pragma once

#include <span>

#include "llmtrain/importers/importers.hpp"

namespace llmtrain::deepspeed {

std::span<const ImportRow> core_rows();   ///< batches, optimizer, scheduler, precision, ZeRO, activations, parallelism
std::span<const ImportRow> other_rows();  ///< monitors, profilers, offload details, removed features

}  // namespace llmtrain::deepspeed
