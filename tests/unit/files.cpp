// SPDX-License-Identifier: Apache-2.0
/// Reading, atomic writing and folders: contents, errors with their exit codes, and that a failure leaves the old file.
#include "llmtrain/base/files.hpp"

#include <doctest/doctest.h>

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <filesystem>
#include <functional>

#include "llmtrain/base/error.hpp"
#include "support/scratch_folder.hpp"

using namespace llmtrain;

namespace {

ExitCode code_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.code();
  }
  return ExitCode::done;
}

}  // namespace

TEST_CASE("what was written is read, and nothing else is left") {
  const ScratchFolder folder;
  const std::string path = folder / "file";
  const std::string text = std::string(200'000, 'x') + std::string("\0\n", 2);
  atomic_write(path, "old");
  atomic_write(path, text);
  CHECK(read_file(path) == text);
  CHECK(std::distance(std::filesystem::directory_iterator(folder.path()), {}) == 1);
  const mode_t mask = ::umask(0);
  ::umask(mask);
  struct stat status {};
  REQUIRE(::stat(path.c_str(), &status) == 0);
  CHECK((status.st_mode & 0777U) == (0666U & ~mask));
}

TEST_CASE("errors of files have their exit codes") {
  const ScratchFolder folder;
  CHECK(code_of([&] { read_file(folder / "none"); }) == ExitCode::missing_input);
  CHECK(code_of([&] { read_file(folder.path()); }) == ExitCode::missing_input);
  CHECK(code_of([&] { atomic_write(folder / "none/file", "x"); }) == ExitCode::cannot_create);
  make_directories(folder / "taken");
  CHECK(code_of([&] { atomic_write(folder / "taken", "x"); }) ==
        ExitCode::io_error);  // a folder cannot be replaced by a file
}

TEST_CASE("a disk without room leaves the old file and no remains") {
  const ScratchFolder folder;
  atomic_write(folder / "file", "old");
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit limit{};
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &limit) == 0);
  const rlimit small{1000, limit.rlim_max};
  ::setrlimit(RLIMIT_FSIZE, &small);
  const ExitCode code = code_of([&] { atomic_write(folder / "file", std::string(5000, 'x')); });
  ::setrlimit(RLIMIT_FSIZE, &limit);
  std::signal(SIGXFSZ, old_handler);
  CHECK(code == ExitCode::io_error);
  CHECK(read_file(folder / "file") == "old");
  CHECK(std::distance(std::filesystem::directory_iterator(folder.path()), {}) == 1);
}

TEST_CASE("folders are made with their parents") {
  const ScratchFolder folder;
  make_directories(folder / "a/b/c");
  make_directories(folder / "a/b/c/");
  CHECK(std::filesystem::is_directory(folder / "a/b/c"));
  atomic_write(folder / "file", "x");
  CHECK(code_of([&] { make_directories(folder / "file"); }) == ExitCode::cannot_create);
  CHECK(code_of([&] { make_directories(folder / "file/below"); }) == ExitCode::cannot_create);
}

TEST_CASE("write_all waits for a full non-blocking pipe and tells a full disk") {
  int ends[2];
  REQUIRE(::pipe2(ends, O_NONBLOCK) == 0);
  FileDescriptor reader(ends[0]);
  FileDescriptor writer(ends[1]);
  const std::string text(300'000, 'x');  // more than a pipe holds
  const pid_t child = ::fork();
  if (child == 0) ::_exit(write_all(writer.get(), text));
  writer.close();
  ::fcntl(reader.get(), F_SETFL, 0);
  std::size_t got = 0;
  char buffer[4096];
  for (ssize_t n; (n = ::read(reader.get(), buffer, sizeof buffer)) > 0;) got += static_cast<std::size_t>(n);
  CHECK(got == text.size());
  FileDescriptor full(::open("/dev/full", O_WRONLY));
  REQUIRE(full);
  CHECK(write_all(full.get(), "x") == ENOSPC);
}
