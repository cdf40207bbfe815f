// SPDX-License-Identifier: Apache-2.0
/// Asks the system.
#include "llmtrain/base/host.hpp"

#include <sched.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <sstream>

#include "llmtrain/base/error.hpp"
#include "llmtrain/base/files.hpp"

namespace llmtrain {

std::string host_name() {
  char name[256] = {};
  ::gethostname(name, sizeof name - 1);
  return name;
}

const char* launcher_rank() {
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"}) {
    if (const char* value = std::getenv(name)) return value;
  }
  return nullptr;
}

std::string system_line(const std::string& path) {
  try {
    const std::string text = read_file(path);
    return text.substr(0, text.find('\n'));
  } catch (const Error&) {
    return "";
  }
}

ProcessState process_state(std::int64_t process) {
  const std::string line = system_line(fmt::format("/proc/{}/stat", process));
  const auto name_end = line.rfind(')');  // the name may hold anything
  if (name_end == std::string::npos) return {};
  std::istringstream fields(line.substr(name_end + 1));
  ProcessState state;
  fields >> state.letter;
  constexpr int start_after_letter = 19;
  for (int i = 0; i < start_after_letter; ++i) fields >> state.start;
  return state;
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
