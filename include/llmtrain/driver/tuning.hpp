// SPDX-License-Identifier: Apache-2.0
/// Algorithms of a step's matrix products: chosen before the first step, the same on all ranks.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "llmtrain/backend/gemm_choices.hpp"
#include "llmtrain/base/mpi.hpp"

namespace llmtrain {

/// Where choices are kept; only rank 0 reads and writes.
struct ChoiceFiles {
  std::string cache;     ///< folder, from run to run; empty: none
  std::string run;       ///< file of the run; empty: none
  bool resumed = false;  ///< the run's file is read, and must be of this device and library
};
/// $XDG_CACHE_HOME, or $HOME/.cache, /llmtrain; empty where neither is set.
std::string choice_cache();

/// A rank's part in the step and what it works with. No tuner on one rank: nothing is chosen on any.
struct ProductTuning {
  GemmTuner* tuner = nullptr;
  const std::map<GemmKey, std::int64_t>& calls;  ///< of each product in a step
  Stream stream;
  Tensor memory;  ///< as GemmTuner::fastest
};

struct ChosenProducts {
  std::int64_t products = 0;  ///< different ones over all ranks, large enough to matter
  std::int64_t tuned = 0;     ///< of those, found by timing now
  double seconds = 0;         ///< that the choice took
  double flops_a_second =
      0;                ///< over this rank's products of a step, each as long as it took when it was chosen; 0 unknown
  std::string warning;  ///< on rank 0
};

/// Each product is timed by the lowest rank that meets it, unless it is known from a file; all ranks with the same device
/// and library then compute it alike. Throws AgreedError: checkpoint_incompatible where the file of a resumed run is of other
/// devices, bad_input where it is damaged. Collective.
ChosenProducts choose_products(const ProductTuning& rank, const MpiComm& world, const ChoiceFiles& files);

}  // namespace llmtrain
