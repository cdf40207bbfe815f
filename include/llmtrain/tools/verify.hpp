// SPDX-License-Identifier: Apache-2.0
/// `llmtrain verify DECK --dump FILE.h5`: numbers of the first steps for comparison with other programs.
#pragma once

#include <span>
#include <string>

#include "llmtrain/base/mpi.hpp"

namespace llmtrain {

int tool_verify(const MpiComm& world, std::span<const std::string> args);

}  // namespace llmtrain
