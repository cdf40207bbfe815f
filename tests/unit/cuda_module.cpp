// SPDX-License-Identifier: Apache-2.0
/// The CUDA module, where it was built: every symbol that it leaves to the program and to its libraries is there.
#include <dlfcn.h>
#include <doctest/doctest.h>

#include <filesystem>
#include <string>

#include "llmtrain/backend/device.hpp"

using namespace llmtrain;

TEST_CASE("the CUDA module opens with all its symbols, and says so where there is no GPU") {
  const auto folder = std::filesystem::read_symlink("/proc/self/exe").parent_path();
  const auto path = folder.parent_path() / "libllmtrain_cuda.so";
  if (!std::filesystem::exists(path)) {
    CHECK(why_no_cuda().find("no CUDA module") != std::string::npos);
    return;
  }
  void* const module = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  REQUIRE_MESSAGE(module != nullptr, std::string(dlerror()));
  for (const char* name : {"llmtrain_cuda_software", "llmtrain_cuda_why_not", "llmtrain_cuda_make_device"}) {
    CHECK_MESSAGE(dlsym(module, name) != nullptr, name);
  }
  if (why_no_cuda().empty()) return;
  CHECK_THROWS_WITH_AS(make_cuda_device({}), doctest::Contains("run.device cuda"), Error);
}
