// SPDX-License-Identifier: Apache-2.0
/// Where this process runs.
#pragma once

#include <cstdint>
#include <string>

namespace llmtrain {

/// Name of the machine, as its kernel has it.
std::string host_name();

/// Number of this process among those of the job, as its launcher says in the environment; null without a launcher.
const char* launcher_rank();

/// A process of this machine.
struct ProcessState {
  std::string letter;  ///< as ps has it: R, S, D (waits for a disk or a driver), T (stopped), Z; "" if it is gone
  std::string start;   ///< when it started: numbers are used again
};
ProcessState process_state(std::int64_t process);

/// First line of a file of the system; "" where there is none.
std::string system_line(const std::string& path);

/// The cores that this process may run on: '1' by number of the core, else '0'; nothing but '0' where the system does not
/// say. As long on every machine.
std::string core_mask();

/// A switch in the environment: off where the variable is "0", on where it is anything else, `otherwise` where it is not
/// set.
bool is_switched_on(const char* variable, bool otherwise);

}  // namespace llmtrain
