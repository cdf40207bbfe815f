// SPDX-License-Identifier: Apache-2.0
/// The public side of every operation: shapes and dtypes checked once, memory ranges and FLOPs noted, work dispatched.
#include "llmtrain/backend/kernels.hpp"

#include "llmtrain/backend/observer.hpp"
