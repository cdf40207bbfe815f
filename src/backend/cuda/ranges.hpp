// SPDX-License-Identifier: Apache-2.0
/// The timers' ranges as ranges of NVTX, which NVIDIA's profilers show; a call costs nanoseconds while none is attached.
#pragma once

#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>
#define LLMTRAIN_NVTX
#endif

#include <string_view>

#include "llmtrain/base/timer.hpp"
#include "wait_check.hpp"

namespace llmtrain {

class DeviceRanges final : public RangeObserver {
 public:
  /// Of the outermost ranges named "step"; null for nobody. Not owned.
  void tell(WaitCheck* check) { check_ = check; }

  void begin([[maybe_unused]] const char* name) override {
#ifdef LLMTRAIN_NVTX
    nvtxRangePushA(name);
#endif
    if (check_ == nullptr) return;
    if (depth_++ == 0 && std::string_view(name) == "step") {
      in_step_ = true;
      check_->begin_step();
    }
  }
  void end() override {
#ifdef LLMTRAIN_NVTX
    nvtxRangePop();
#endif
    if (check_ == nullptr || --depth_ > 0 || !in_step_) return;
    in_step_ = false;
    check_->end_step();
  }

 private:
  WaitCheck* check_ = nullptr;
  int depth_ = 0;
  bool in_step_ = false;
};

}  // namespace llmtrain
