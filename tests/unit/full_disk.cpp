// SPDX-License-Identifier: Apache-2.0
/// A disk that becomes full at any moment of a save: the save fails, nothing of it stays, the last checkpoint is good.
#include <doctest/doctest.h>
#include <sys/mount.h>

#include <cstdlib>

#include "damage.hpp"
#include "llmtrain/base/inject.hpp"
#include "llmtrain/checkpoint/folders.hpp"

using namespace llmtrain;
using namespace checkpoint_test;

namespace {

/// What must hold after a save of step 2 that failed: the checkpoint of step 1 is all there is.
void check_only_first(const fs::path& folder) {
  CHECK_FALSE(fs::exists(folder / "step-00000002"));
  CHECK(list_step_folders(folder).unfinished.empty());
  const Resume resume = find_checkpoint(alone, "auto", folder);
  REQUIRE(resume.checkpoint);
  CHECK(resume.checkpoint->manifest.state.step == 1);
  CHECK(resume.notes.empty());
}

int save_second(const fs::path& folder, std::string& message) {
  return code_of([&] { save_at(folder, 2); }, &message);
}

/// A small disk, where this user may mount one.
class SmallDisk {
 public:
  explicit SmallDisk(const fs::path& path) : path_(path) {
    fs::create_directories(path);
    mounted_ = ::mount("none", path.c_str(), "tmpfs", 0, "size=1m") == 0;
  }
  ~SmallDisk() {
    if (mounted_) ::umount2(path_.c_str(), MNT_DETACH);
  }
  explicit operator bool() const { return mounted_; }

 private:
  fs::path path_;
  bool mounted_ = false;
};

}  // namespace

TEST_CASE("every single write fails for want of space") {
  const Scratch scratch;
  save_at(scratch.path(), 1);
  int failed = 0;
  for (int write = 1;; ++write) {
    ::setenv("LLMTRAIN_INJECT", ("phase=save.write:" + std::to_string(write) + ",kind=fail").c_str(), 1);
    arm_faults(0);
    std::string message;
    const int code = save_second(scratch.path(), message);
    if (code == 0) break;
    ++failed;
    CAPTURE(write);
    CHECK(code == 74);
    CHECK(message.find("No space left on device") != std::string::npos);
    check_only_first(scratch.path());
  }
  ::unsetenv("LLMTRAIN_INJECT");
  arm_faults(0);
  CHECK(failed >= 10);  // headers, six pieces, checkpoint.h5
  CHECK(fs::exists(scratch.path() / "step-00000002"));
}

TEST_CASE("a small disk with less and less room") {
  const Scratch scratch;
  const fs::path folder = scratch.path() / "disk";
  const SmallDisk disk(folder);
  if (!disk) {
    MESSAGE("this user may not mount a small disk: not tried");
    return;
  }
  save_at(folder, 1);
  const auto room = [&] { return static_cast<std::int64_t>(fs::space(folder).available); };
  const std::int64_t whole = room();
  int failed = 0, saved = 0;
  for (std::int64_t left = 0; saved == 0 && left < whole; left += 4096) {
    spill(folder / "filler", std::string(static_cast<std::size_t>(whole - left), 'x'));
    std::string message;
    const int code = save_second(folder, message);
    if (code == 0) {
      ++saved;
      break;
    }
    ++failed;
    CAPTURE(left);
    CHECK_MESSAGE((code == 74 || code == 73), message);
    check_only_first(folder);
    fs::remove(folder / "filler");
  }
  CHECK(failed >= 2);
  CHECK(saved == 1);
  CHECK(tool({"verify", (folder / "step-00000002").string()}) == 0);
}
