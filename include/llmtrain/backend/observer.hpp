// SPDX-License-Identifier: Apache-2.0
/// What an operation or collective tells whoever listens: the planner, the hazard checker, the profile.
#pragma once

#include <cstdint>
#include <span>

#include "llmtrain/backend/device.hpp"

namespace llmtrain {

/// One operation as issued. Tensors that are both read and written stand in both lists.
struct OpNote {
  const char* name;
  Stream stream;
  std::span<const Tensor> writes;
  std::span<const Tensor> reads;
  double flops = 0;       ///< multiply-adds counted as two; 0 for memory-bound operations
  const char* form = "";  ///< of a gemm: "nn", "nt" or "tn"
};

/// One collective of a batch as issued.
struct CollectiveNote {
  const char* name;  ///< "all_reduce", "reduce_scatter", ...
  const Group* group;
  Tensor destination;
  Tensor source;
};

class OpObserver {
 public:
  virtual ~OpObserver() = default;
  virtual void on_operation(const OpNote& note) = 0;
  virtual void on_collective(const CollectiveNote& note) = 0;
};

}  // namespace llmtrain
