// SPDX-License-Identifier: Apache-2.0
/// Asks the system.
#include "llmtrain/base/host.hpp"

#include <sched.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

namespace llmtrain {

std::string host_name() {
  char name[256] = {};
  ::gethostname(name, sizeof name - 1);
  return name;
}

std::string core_mask() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::string mask(CPU_SETSIZE, '0');
  if (sched_getaffinity(0, sizeof set, &set) != 0) return mask;
  for (std::size_t core = 0; core < mask.size(); ++core) mask[core] = CPU_ISSET(core, &set) ? '1' : '0';
  return mask;
}

bool is_switched_on(const char* variable, bool otherwise) {
  const char* const setting = std::getenv(variable);
  return setting == nullptr ? otherwise : std::strcmp(setting, "0") != 0;
}

}  // namespace llmtrain
