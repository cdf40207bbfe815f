// SPDX-License-Identifier: Apache-2.0
/// The one exception type of llmtrain, the documented exit codes, and the checks that throw it.
#pragma once

#include <fmt/format.h>

#include <exception>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>

namespace llmtrain {

/// Exit codes of the program (sysexits.h where one fits); `llmtrain help exit-codes` prints them.
enum class ExitCode : int {
  done = 0,
  comparison_failed = 1,         ///< verify or checkpoint diff found a difference, or doctor something slow
  usage = 64,                    ///< command line not understood
  bad_input = 65,                ///< a file was read but its contents are wrong
  missing_input = 66,            ///< a named file does not exist or cannot be opened
  internal = 70,                 ///< a broken invariant: a bug in llmtrain
  cannot_create = 73,            ///< an output cannot be created
  io_error = 74,                 ///< reading or writing failed part-way (a full disk, say)
  requeue = 75,                  ///< stopped on request with a checkpoint written: start it again
  permission = 77,               ///< not allowed
  configuration = 78,            ///< the deck asks for something impossible
  diverged = 80,                 ///< non-finite steps beyond optimizer.max_skipped
  hang = 81,                     ///< no rank got on for run.hang_timeout, or a peer failed
  out_of_memory = 82,            ///< memory that is needed cannot be had
  checkpoint_damaged = 83,       ///< a checkpoint's bytes are not what its manifest says
  checkpoint_incompatible = 84,  ///< a checkpoint belongs to another model, data or optimizer
};

/// Thrown for every failure; `what()` is one complete message: what, where, remedy.
class Error : public std::runtime_error {
 public:
  Error(ExitCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  ExitCode code() const { return code_; }

 private:
  ExitCode code_;
};

/// The text that is printed for an error: deck errors start with their place, others with "llmtrain: error: ".
std::string error_text(const Error& error);

/// Prints an error and ends the process with its code at once: past destructors and exit handlers, for they might wait for
/// what hangs. From any thread.
[[noreturn]] void end_process(const Error& error);

/// Calls `body`; whatever it throws comes out as an Error.
template <class Body>
auto with_errors(Body&& body) {
  try {
    return body();
  } catch (const Error&) {
    throw;
  } catch (const std::bad_alloc&) {
    throw Error(ExitCode::out_of_memory, "out of memory");
  } catch (const std::exception& error) {
    throw Error(ExitCode::internal, std::string("internal error: ") + error.what());
  }
}

/// Throws Error(code, formatted message).
template <class... Args>
[[noreturn]] void fail(ExitCode code, fmt::format_string<Args...> format, Args&&... args) {
  throw Error(code, fmt::format(format, std::forward<Args>(args)...));
}

/// Throws Error(code, formatted message) unless `condition` holds.
template <class... Args>
void require(bool condition, ExitCode code, fmt::format_string<Args...> format, Args&&... args) {
  if (!condition) throw Error(code, fmt::format(format, std::forward<Args>(args)...));
}

/// Throws Error(internal): `expression` at `file`:`line` does not hold.
[[noreturn]] void check_failed(const char* expression, const char* file, int line);

}  // namespace llmtrain

/// An internal invariant; checked in every build type, so keep it out of inner loops.
#define LLMTRAIN_CHECK(expression) \
  ((expression) ? static_cast<void>(0) : ::llmtrain::check_failed(#expression, __FILE__, __LINE__))
