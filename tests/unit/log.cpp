// SPDX-License-Identifier: Apache-2.0
/// The Logger: what goes where, warnings once, earlier lines in the file, and outputs that fail.
#include "llmtrain/base/log.hpp"

#include <doctest/doctest.h>

#include <fcntl.h>
#include <unistd.h>

#include <csignal>

#include "llmtrain/base/error.hpp"
#include "support/scratch_folder.hpp"

using namespace llmtrain;

namespace {

FileDescriptor open_new(const std::string& path) {
  return FileDescriptor(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666));
}

/// A logger whose terminal is two files.
struct Captured {
  explicit Captured(int rank = 0)
      : out(open_new(folder / "out")), err(open_new(folder / "err")), log(rank, out.get(), err.get()) {}
  std::string output() const { return read_file(folder / "out"); }
  std::string errors() const { return read_file(folder / "err"); }
  std::string file() const { return read_file(folder / "log.txt"); }
  ScratchFolder folder;
  FileDescriptor out, err;
  Logger log;
};

/// The writing end of a pipe that nobody reads.
FileDescriptor broken_pipe() {
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  ::close(ends[0]);
  return FileDescriptor(ends[1]);
}

}  // namespace

TEST_CASE("levels go to their outputs and all of them to the file, earlier lines first") {
  Captured run;
  run.log.info("plan {}", 1);
  run.log.warning("odd {}", "thing");
  run.log.attach_file(run.folder / "log.txt", false);
  run.log.info("step 1");
  run.log.warning("odd thing");
  run.log.warning("other");
  run.log.error("bad");
  run.log.local_error("worse");
  CHECK(run.output() == "plan 1\nstep 1\n");
  CHECK(run.errors() == "warning: odd thing\nwarning: other\nerror: bad\nerror: worse\n");
  CHECK(run.file() == "plan 1\nwarning: odd thing\nstep 1\nwarning: other\nerror: bad\nerror: worse\n");
}

TEST_CASE("a resumed run appends to its log, a fresh one empties it") {
  Captured run;
  for (const bool append : {false, true, true, false}) {
    Logger log(0, run.out.get(), run.err.get());
    log.info("{}", append ? "resumed" : "fresh");
    log.attach_file(run.folder / "log.txt", append);
    if (append) continue;
    CHECK(run.file() == "fresh\n");
  }
  Logger log(0, run.out.get(), run.err.get());
  log.attach_file(run.folder / "log.txt", true);
  log.info("more");
  CHECK(run.file() == "fresh\nmore\n");
}

TEST_CASE("other ranks are silent but for local errors") {
  Captured run(3);
  run.log.info("a");
  run.log.warning("b");
  run.log.error("c");
  run.log.attach_file(run.folder / "log.txt", false);
  run.log.local_error("disk {}", "gone");
  CHECK(run.output().empty());
  CHECK(run.errors() == "error: rank 3: disk gone\n");
  CHECK_THROWS_AS(run.file(), Error);
}

TEST_CASE("a log that cannot be made is an error that names it") {
  Captured run;
  try {
    run.log.attach_file(run.folder / "none/log.txt", false);
    FAIL("no error");
  } catch (const Error& error) {
    CHECK(error.code() == ExitCode::cannot_create);
    CHECK(std::string(error.what()).find("none/log.txt") != std::string::npos);
  }
}

TEST_CASE("a closed standard output is one warning and the file goes on") {
  Captured run;
  const auto old_handler = std::signal(SIGPIPE, SIG_DFL);
  ignore_broken_pipes();
  const FileDescriptor pipe = broken_pipe();
  Logger log(0, pipe.get(), run.err.get());
  log.attach_file(run.folder / "log.txt", false);
  log.info("one");
  log.info("two");
  std::signal(SIGPIPE, old_handler);
  const std::string note = "warning: cannot write to the standard output: Broken pipe; lines may be missing there\n";
  CHECK(run.errors() == note);
  CHECK(run.file() == "one\n" + note + "two\n");
}

TEST_CASE("a closed standard error is told in the file, and nothing throws") {
  Captured run;
  ignore_broken_pipes();
  const FileDescriptor pipe = broken_pipe();
  Logger log(0, run.out.get(), pipe.get());
  log.attach_file(run.folder / "log.txt", false);
  log.warning("one");
  log.warning("two");
  std::signal(SIGPIPE, SIG_DFL);
  CHECK(run.file() ==
        "warning: one\nwarning: cannot write to the standard error: Broken pipe; lines may be missing there\nwarning: "
        "two\n");
}

TEST_CASE("a full log disk is one warning on the terminal") {
  Captured run;
  run.log.attach_file("/dev/full", true);
  run.log.info("one");
  run.log.info("two");
  CHECK(run.output() == "one\ntwo\n");
  CHECK(run.errors() == "warning: cannot write to '/dev/full': No space left on device; lines may be missing there\n");
}
