// SPDX-License-Identifier: Apache-2.0
/// Reading, durable and atomic writing, renames and folders: contents, errors with their exit codes, links refused, and
/// that a failure leaves the old file.
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
#include <span>
#include <string>

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

TEST_CASE("a small file is read up to its limit, and neither through a link nor from what is no file") {
  const ScratchFolder folder;
  const std::string text("a\0b\n", 4);
  atomic_write(folder / "file", text);
  CHECK(read_small_file(folder / "file", 4) == text);
  CHECK(code_of([&] { read_small_file(folder / "file", 3); }) == ExitCode::io_error);
  CHECK(code_of([&] { read_small_file(folder / "none", 4); }) == ExitCode::missing_input);
  CHECK(code_of([&] { read_small_file(folder.path(), 1 << 20); }) == ExitCode::missing_input);
  std::filesystem::create_symlink(folder / "file", folder / "link");
  CHECK(code_of([&] { read_small_file(folder / "link", 4); }) == ExitCode::missing_input);
  CHECK(read_file(folder / "link") == text);
  REQUIRE(::mkfifo((folder / "pipe").c_str(), 0666) == 0);
  CHECK(code_of([&] { read_small_file(folder / "pipe", 4); }) == ExitCode::missing_input);  // and does not hang
}

TEST_CASE("a file without a size, as in /proc, is read whole") { CHECK(read_file("/proc/self/status").size() > 100); }

TEST_CASE("a durable write overwrites, but follows no link; a replacement takes the link's place") {
  const ScratchFolder folder;
  durable_write(folder / "file", "a longer text");
  durable_write(folder / "file", "short");
  CHECK(read_file(folder / "file") == "short");
  std::filesystem::create_symlink(folder / "file", folder / "link");
  CHECK(code_of([&] { durable_write(folder / "link", "x"); }) == ExitCode::cannot_create);
  CHECK(code_of([&] { durable_write(folder / "none/file", "x"); }) == ExitCode::cannot_create);
  CHECK(code_of([&] { durable_write("/dev/full", "x"); }) == ExitCode::io_error);
  atomic_write(folder / "link", "new");
  CHECK(read_small_file(folder / "link", 3) == "new");
  CHECK(read_file(folder / "file") == "short");
}

TEST_CASE("renames and flushes tell what is missing") {
  const ScratchFolder folder;
  durable_write(folder / "old", "x");
  durable_rename(folder / "old", folder / "new");
  CHECK(read_file(folder / "new") == "x");
  CHECK(code_of([&] { durable_rename(folder / "old", folder / "new"); }) == ExitCode::io_error);
  sync_path(folder / "new");
  sync_path(folder.path());
  CHECK(code_of([&] { sync_path(folder / "old"); }) == ExitCode::io_error);
  CHECK(folder_of("a/b") == "a");
  CHECK(folder_of("b") == ".");
}

TEST_CASE("reads and writes by position say how far they came") {
  const ScratchFolder folder;
  const FileDescriptor file(::open((folder / "file").c_str(), O_RDWR | O_CREAT, 0666));
  REQUIRE(file);
  const std::string text = "0123456789";
  CHECK(write_all_at(file.get(), 2, std::as_bytes(std::span(text))) == 0);
  std::string got(8, 'x');
  const ReadResult cut = read_full_at(file.get(), 6, std::as_writable_bytes(std::span(got)));
  CHECK(cut.error == 0);
  CHECK(cut.bytes == 6);
  CHECK(got == "456789xx");
  const ReadResult start = read_full(file.get(), std::as_writable_bytes(std::span(got)));
  CHECK(start.bytes == 8);
  CHECK(got == std::string("\0\0", 2) + "012345");
  const FileDescriptor place(::open(folder.path().c_str(), O_RDONLY));
  CHECK(read_full(place.get(), std::as_writable_bytes(std::span(got))).error == EISDIR);
  CHECK(write_all_at(place.get(), 0, std::as_bytes(std::span(text))) == EBADF);
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
