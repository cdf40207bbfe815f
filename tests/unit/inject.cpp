// SPDX-License-Identifier: Apache-2.0
/// Injected faults: what the variable may say, and which pass of a point it hits.
#include "llmtrain/base/inject.hpp"

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>

#include "llmtrain/base/error.hpp"

using namespace llmtrain;

namespace {

/// Arms a text for rank 1, and disarms at the end.
class Armed {
 public:
  explicit Armed(const char* text) {
    ::setenv("LLMTRAIN_INJECT", text, 1);
    line = arm_faults(1);
  }
  ~Armed() {
    ::unsetenv("LLMTRAIN_INJECT");
    arm_faults(1);
  }
  std::string line;
};

}  // namespace

TEST_CASE("without the variable nothing is armed") {
  CHECK(arm_faults(0).empty());
  for (const FaultPoint& point : fault_points()) CHECK_FALSE(fault_at(point.name));
}

TEST_CASE("a fault hits the pass it names, of its rank and step") {
  {
    const Armed armed("phase=save.piece:3,kind=fail");
    CHECK(armed.line.find("phase=save.piece:3,kind=fail") != std::string::npos);
    CHECK_FALSE(fault_at("save.piece"));
    CHECK_FALSE(fault_at("save.open"));
    CHECK_FALSE(fault_at("save.piece"));
    CHECK(fault_at("save.piece"));
    CHECK_FALSE(fault_at("save.piece"));
  }
  {
    const Armed armed("phase=save.open,kind=fail,times=0,step=8,rank=1");
    CHECK_FALSE(fault_at("save.open"));
    set_fault_step(8);
    CHECK(fault_at("save.open"));
    CHECK_THROWS_AS(fault_point("save.open"), Error);
    set_fault_step(0);
  }
  {
    const Armed armed("phase=save.open,kind=fail,rank=2");
    CHECK_FALSE(armed.line.empty());  // announced on every rank
    CHECK_FALSE(fault_at("save.open"));
  }
}

TEST_CASE("sigkill ends the process at the point") {
  const pid_t child = ::fork();
  if (child == 0) {
    ::setenv("LLMTRAIN_INJECT", "phase=step", 1);
    arm_faults(0);
    fault_at("step");
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  CHECK(WIFSIGNALED(status));
  CHECK(WTERMSIG(status) == SIGKILL);
}

TEST_CASE("texts that are not understood are 64") {
  for (const char* text : {"", "phase=", "phase=save", "save.open", "phase=save.open,kind=boom", "phase=save.open:x",
                           "phase=save.open,rank=-1", "phase=save.open,wait=1"}) {
    ::setenv("LLMTRAIN_INJECT", text, 1);
    int code = 0;
    try {
      arm_faults(0);
    } catch (const Error& error) {
      code = static_cast<int>(error.code());
    }
    CHECK_MESSAGE(code == 64, text);
  }
  ::unsetenv("LLMTRAIN_INJECT");
  arm_faults(0);
}
