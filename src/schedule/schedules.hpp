// SPDX-License-Identifier: Apache-2.0
/// The schedules that the registry names, one file each.
#pragma once

#include "llmtrain/schedule/schedule.hpp"

namespace llmtrain {

std::vector<Action> gpipe(const ScheduleShape& shape);
std::vector<Action> one_f_one_b(const ScheduleShape& shape);

}  // namespace llmtrain
