// SPDX-License-Identifier: Apache-2.0
/// What this build was made from and with, for `--version`, `doctor` and the run's log.
#pragma once

#include <string_view>

namespace llmtrain::build_info {

std::string_view version();         ///< of the project: "0.1.0"
std::string_view git_id();          ///< of HEAD when it was built, with "-dirty" where files differed; or "unknown"
std::string_view compiler();        ///< "GNU 12.2.0"
std::string_view build_type();      ///< "Release", "Debug", ...
std::string_view architecture();    ///< what -march was given: "native", a name, or "" for the compiler's default
std::string_view sanitizers();      ///< "" for none
std::string_view mpi_version();     ///< the library built against: "Open MPI v4.1.4"
std::string_view hdf5_version();    ///< "1.10.8"
std::string_view onednn_version();  ///< "2.6.3"
std::string_view cuda_version();    ///< of the CUDA module built beside the program; "none" where there is none

}  // namespace llmtrain::build_info
