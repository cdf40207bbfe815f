// SPDX-License-Identifier: Apache-2.0
/// Where this process runs.
#pragma once

#include <string>

namespace llmtrain {

/// Name of the machine, as its kernel has it.
std::string host_name();

/// The cores that this process may run on: '1' by number of the core, else '0'; nothing but '0' where the system does not
/// say. As long on every machine.
std::string core_mask();

/// A switch in the environment: off where the variable is "0", on where it is anything else, `otherwise` where it is not
/// set.
bool is_switched_on(const char* variable, bool otherwise);

}  // namespace llmtrain
