// SPDX-License-Identifier: Apache-2.0
/// Formatting of errors and of broken invariants.
#include "llmtrain/base/error.hpp"

#include <unistd.h>

#include "llmtrain/base/files.hpp"

namespace llmtrain {

std::string error_text(const Error& error) {
  const bool has_place = error.code() == ExitCode::configuration;
  return (has_place ? "" : "llmtrain: error: ") + std::string(error.what()) + "\n";
}

void end_process(const Error& error) {
  static_cast<void>(write_all(STDERR_FILENO, error_text(error)));
  ::_exit(static_cast<int>(error.code()));
}

void check_failed(const char* expression, const char* file, int line) {
  fail(ExitCode::internal,
       "internal error: '{}' does not hold at {}:{}; please report this with the deck and the command", expression,
       file, line);
}

}  // namespace llmtrain
