// SPDX-License-Identifier: Apache-2.0
/// Requests to stop by signal: SIGUSR1, SIGUSR2 and SIGTERM are noted, and somebody asks between two steps.
#pragma once

#include <string>

namespace llmtrain {

/// From now on the first SIGUSR1, SIGUSR2 or SIGTERM is only noted. A second one ends the process at once with exit
/// code 128 + its number. Signals that follow the first within 20 ms are the same request: `timeout` sends each twice.
void note_stop_signals();

/// Number of the first signal noted; 0: none yet.
int stop_signal();

/// "SIGUSR1"; "signal 42" for one without a name here.
std::string signal_name(int number);

}  // namespace llmtrain
