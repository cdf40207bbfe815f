// SPDX-License-Identifier: Apache-2.0
/// The Logger: one write() a message, so that lines of two outputs keep their order and nothing is lost in a crash.
#include "llmtrain/base/log.hpp"

#include <fcntl.h>

#include <cerrno>
#include <csignal>

#include "llmtrain/base/error.hpp"

namespace llmtrain {

namespace {

constexpr const char* erase_line = "\r\x1b[K";

}  // namespace

void ignore_broken_pipes() { std::signal(SIGPIPE, SIG_IGN); }

Logger::Logger(int rank, int output, int errors)
    : rank_(rank),
      output_{output, "the standard output"},
      errors_{errors, "the standard error"},
      terminal_(rank == 0 ? Terminal(output) : Terminal()) {}

void Logger::attach_file(const std::string& path, bool append) {
  if (rank_ != 0) return;
  const std::lock_guard lock(mutex_);
  FileDescriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | (append ? 0 : O_TRUNC), 0666));
  if (!file)
    fail(ExitCode::cannot_create, "cannot write the log '{}': {}; choose another run.dir or check its permissions",
         path, errno_text(errno));
  file_handle_ = std::move(file);
  file_ = Sink{file_handle_.get(), "'" + path + "'"};
  put_to_file(std::exchange(earlier_, {}));
}

void Logger::write_info(std::string_view message) {
  if (rank_ != 0) return;
  const std::lock_guard lock(mutex_);
  put(output_, fmt::format("{}\n", message));
}

void Logger::write_warning(const std::string& message) {
  if (rank_ != 0) return;
  const std::lock_guard lock(mutex_);
  if (warned_.insert(message).second) put(errors_, fmt::format("warning: {}\n", message));
}

void Logger::write_error(std::string_view message) {
  if (rank_ != 0) return;
  const std::lock_guard lock(mutex_);
  put(errors_, fmt::format("error: {}\n", message));
}

void Logger::write_local_error(std::string_view message) {
  if (rank_ == 0) return write_error(message);
  const std::lock_guard lock(mutex_);
  put_to(errors_, fmt::format("error: rank {}: {}\n", rank_, message));
}

void Logger::status(std::string line) {
  const std::lock_guard lock(mutex_);
  if (!terminal_ || line == status_) return;
  put_to(output_, erase_line + line);
  status_ = std::move(line);
}

void Logger::put(Sink& terminal, std::string text) {
  const int error = put_above_status(terminal, text);
  if (error != 0) {
    const std::string note = failure_text(terminal, error);
    if (!note.empty() && &terminal != &errors_) put_to(errors_, note);
    text += note;
  }
  if (file_.fd >= 0) {
    put_to_file(text);
  } else {
    earlier_ += text;
  }
}

void Logger::put_to_file(const std::string& text) {
  const int error = put_to(file_, text);
  if (error != 0) put_to(errors_, failure_text(file_, error));
}

/// Returns 0 or errno of `text`. The standard error may be the same terminal.
int Logger::put_above_status(Sink& sink, const std::string& text) {
  if (status_.empty()) return put_to(sink, text);
  if (&sink == &output_) return put_to(sink, erase_line + text + status_);
  put_to(output_, erase_line);
  const int error = put_to(sink, text);
  put_to(output_, status_);
  return error;
}

/// Returns 0 or errno.
int Logger::put_to(Sink& sink, const std::string& text) {
  if (sink.closed || text.empty()) return 0;
  const int error = write_all(sink.fd, text);
  if (error == EPIPE || error == EBADF) sink.closed = true;
  return error;
}

/// The warning of a sink's first failure, empty afterwards.
std::string Logger::failure_text(Sink& sink, int error) {
  if (std::exchange(sink.failed, true)) return {};
  return fmt::format("warning: cannot write to {}: {}; lines may be missing there\n", sink.name, errno_text(error));
}

}  // namespace llmtrain
