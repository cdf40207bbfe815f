// SPDX-License-Identifier: Apache-2.0
/// Flags of the control reduction, and the arithmetic of the walltime.
#include "llmtrain/driver/control.hpp"

#include <algorithm>
#include <array>

#include "llmtrain/base/signals.hpp"

namespace llmtrain {

void Control::post(const Notice& notice) {
  flags_.post(std::array<std::int64_t, 4>{stop_signal(), notice.out_of_time, notice.saving, notice.displaced});
}

Agreement Control::read() {
  const auto flags = flags_.read();
  return {{static_cast<int>(flags[0]), flags[1] != 0}, flags[2] != 0, flags[3] != 0};
}

void Walltime::took_step(double seconds) { step_ = std::max(step_, seconds); }
void Walltime::took_evaluation(double seconds) { evaluation_ = std::max(evaluation_, seconds); }
void Walltime::took_save(double seconds) { save_ = seconds; }

double Walltime::time_of(Plans plans) const {
  return step_ + (plans.evaluation ? evaluation_ : 0) + (plans.save ? save_ : 0);
}

bool Walltime::is_over(double elapsed, Plans next, Plans after) const {
  return limit_ > 0 && elapsed + time_of(next) + time_of({after.evaluation, true}) > limit_;
}

}  // namespace llmtrain
