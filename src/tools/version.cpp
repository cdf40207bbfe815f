// SPDX-License-Identifier: Apache-2.0
/// `llmtrain --version`: what this build was made from and with.
#include <fmt/format.h>

#include "llmtrain/base/build_info.hpp"
#include "llmtrain/tools/tool.hpp"

namespace llmtrain {

int tool_version(const MpiComm&, Arguments arguments) {
  require(arguments.empty(), ExitCode::usage, "--version takes no arguments, but '{}' follows", arguments.front());
  fmt::print("llmtrain {}\n", build_info::version());
  fmt::print("  git       {}\n", build_info::git_id());
  fmt::print("  compiler  {}\n", build_info::compiler());
  fmt::print("  build     {}\n", build_info::build_type());
  fmt::print("  march     {}\n", build_info::architecture());
  if (!build_info::sanitizers().empty()) fmt::print("  sanitize  {}\n", build_info::sanitizers());
  fmt::print("  MPI       {}\n", build_info::mpi_version());
  fmt::print("  HDF5      {}\n", build_info::hdf5_version());
  fmt::print("  oneDNN    {}\n", build_info::onednn_version());
  fmt::print("  CUDA      {}\n", build_info::cuda_version());
  return 0;
}

}  // namespace llmtrain
