// SPDX-License-Identifier: Apache-2.0
/// Looks through Open MPI's pseudo-terminals at what its launcher writes to.
#include "llmtrain/base/terminal.hpp"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <string_view>

#include "llmtrain/base/error.hpp"

namespace llmtrain {

namespace {

std::string_view environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::string output_of(pid_t process) { return "/proc/" + std::to_string(process) + "/fd/1"; }

/// 0 if it cannot be found.
pid_t parent_of(pid_t process) {
  try {
    const std::string stat = read_file("/proc/" + std::to_string(process) + "/stat");  // "12 (a name) S 11 ..."
    const std::size_t end_of_name = stat.rfind(") ");
    return end_of_name == std::string::npos ? 0 : std::atoi(stat.c_str() + end_of_name + 4);
  } catch (const Error&) {
    return 0;
  }
}

/// The standard output of the nearest ancestor that writes elsewhere than to `own`; none if that is no terminal.
FileDescriptor launcher_output(const struct stat& own) {
  pid_t process = getppid();
  for (struct stat its{}; process > 1; process = parent_of(process)) {
    if (::stat(output_of(process).c_str(), &its) != 0 || !S_ISCHR(its.st_mode)) return {};
    if (its.st_rdev != own.st_rdev) break;
  }
  FileDescriptor file(::open(output_of(process).c_str(), O_WRONLY | O_NOCTTY | O_NONBLOCK | O_CLOEXEC));
  return file && isatty(file.get()) == 1 ? std::move(file) : FileDescriptor();
}

}  // namespace

Terminal::Terminal(int fd) {
  struct stat own {};
  const std::string_view kind = environment("TERM");
  if (kind.empty() || kind == "dumb" || isatty(fd) != 1 || fstat(fd, &own) != 0) return;
  const bool launched = !environment("OMPI_COMM_WORLD_RANK").empty();
  file_ = launched ? launcher_output(own) : FileDescriptor(fcntl(fd, F_DUPFD_CLOEXEC, 0));
}

int Terminal::columns() const {
  winsize size{};
  return file_ && ioctl(file_.get(), TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

bool Terminal::colors() const { return environment("NO_COLOR").empty(); }

}  // namespace llmtrain
