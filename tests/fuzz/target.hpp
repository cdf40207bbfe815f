// SPDX-License-Identifier: Apache-2.0
/// What a fuzz target consists of; replay.cpp and libfuzzer.cpp drive it.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace llmtrain::fuzz {

/// Gives these bytes to the parser. It may accept them, soundly, or refuse them with the documented error; throws for
/// anything else.
void try_bytes(std::string_view bytes);

/// Inputs to start from, made in code: they reach all that the parser reads.
std::vector<std::string> seeds();

/// Throws unless `holds`.
inline void expect(bool holds, const std::string& what) {
  if (!holds) throw std::logic_error(what);
}

}  // namespace llmtrain::fuzz
