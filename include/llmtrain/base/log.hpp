// SPDX-License-Identifier: Apache-2.0
/// Messages for people: rank 0's lines go to the terminal and to the run's log.txt.
#pragma once

#include <fmt/format.h>

#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "llmtrain/base/files.hpp"
#include "llmtrain/base/terminal.hpp"

namespace llmtrain {

/// Ignores SIGPIPE in this process, so that a closed terminal or pipe is an errno, not a death. Call first in main.
void ignore_broken_pipes();

/// Where messages go, passed by reference to who speaks. On rank 0: info lines to standard output, warnings and
/// errors to standard error with "warning: " or "error: " before them, and all of them to the log file. Other ranks
/// are silent but for local_error(). Lines carry no time, so two runs' lines compare. A message may hold several lines.
/// An output that fails is named in one warning on the outputs that are left; a message never throws for it.
class Logger {
 public:
  /// `output` and `errors` are file descriptors and stay open.
  explicit Logger(int rank = 0, int output = 1, int errors = 2);
  ~Logger() { status(""); }
  Logger(const Logger&) = delete;
  Logger& operator=(const Logger&) = delete;

  template <class... Args>
  void info(fmt::format_string<Args...> format, Args&&... args) {
    write_info(fmt::format(format, std::forward<Args>(args)...));
  }
  /// The same text is printed once only.
  template <class... Args>
  void warning(fmt::format_string<Args...> format, Args&&... args) {
    write_warning(fmt::format(format, std::forward<Args>(args)...));
  }
  /// For a failure that all ranks agreed on.
  template <class... Args>
  void error(fmt::format_string<Args...> format, Args&&... args) {
    write_error(fmt::format(format, std::forward<Args>(args)...));
  }
  /// For a failure that only this rank knows of: printed on any rank, with the rank's number unless it is 0.
  template <class... Args>
  void local_error(fmt::format_string<Args...> format, Args&&... args) {
    write_local_error(fmt::format(format, std::forward<Args>(args)...));
  }

  /// The terminal that shows rank 0's info lines; none on other ranks.
  const Terminal& terminal() const { return terminal_; }
  /// The line that stays below all others on that terminal, and in no file: replaced by the next, gone with an empty one.
  /// It has no '\n', and fits into the terminal's columns but one.
  void status(std::string line);

  /// Opens the log file on rank 0, at its end if `append`, else empty, and writes what was said before into it.
  /// Error: cannot_create; the file is not attached then.
  void attach_file(const std::string& path, bool append);

 private:
  struct Sink {
    int fd = -1;
    std::string name;
    bool failed = false;  ///< warned of; later writes are still tried, a disk may get room again
    bool closed = false;  ///< nobody reads it any more
  };

  void write_info(std::string_view message);
  void write_warning(const std::string& message);
  void write_error(std::string_view message);
  void write_local_error(std::string_view message);
  void put(Sink& terminal, std::string text);
  void put_to_file(const std::string& text);
  int put_to(Sink& sink, const std::string& text);
  int put_above_status(Sink& sink, const std::string& text);
  std::string failure_text(Sink& sink, int error);

  int rank_;
  std::mutex mutex_;  // the watchdog's thread may speak too
  Sink output_;
  Sink errors_;
  const Terminal terminal_;
  std::string status_;
  Sink file_;
  FileDescriptor file_handle_;
  std::string earlier_;  ///< lines said before the file was attached
  std::set<std::string> warned_;
};

}  // namespace llmtrain
