// SPDX-License-Identifier: Apache-2.0
/// Formatting of broken invariants.
#include "llmtrain/base/error.hpp"

namespace llmtrain {

void check_failed(const char* expression, const char* file, int line) {
  fail(ExitCode::internal,
       "internal error: '{}' does not hold at {}:{}; please report this with the deck and the command", expression,
       file, line);
}

}  // namespace llmtrain
