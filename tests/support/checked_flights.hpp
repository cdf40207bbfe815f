// SPDX-License-Identifier: Apache-2.0
/// CheckedFlights: devices made meanwhile watch what is on its way.
#pragma once

#include <cstdlib>
#include <string>

namespace llmtrain {

/// Results of collectives are held back, and sources watched, while an object of this lives.
class CheckedFlights {
 public:
  CheckedFlights() { setenv(name, "1", 1); }
  ~CheckedFlights() { before_.empty() ? unsetenv(name) : setenv(name, before_.c_str(), 1); }
  CheckedFlights(const CheckedFlights&) = delete;
  CheckedFlights& operator=(const CheckedFlights&) = delete;

 private:
  static constexpr const char* name = "LLMTRAIN_CHECK_IN_FLIGHT";
  const std::string before_ = std::getenv(name) == nullptr ? "" : std::getenv(name);
};

}  // namespace llmtrain
