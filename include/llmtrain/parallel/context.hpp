// SPDX-License-Identifier: Apache-2.0
/// What a layer needs to compute: kernels, the stream they run on, and scratch memory.
#pragma once

#include "llmtrain/backend/kernels.hpp"
#include "llmtrain/memory/scratch.hpp"

namespace llmtrain {

struct Context {
  Kernels& kernels;
  Stream stream;
  ScratchStack& scratch;
};

/// A gradient accumulator as a layer sees it. The store decides whether the layer's result is the step's first.
struct Gradient {
  Tensor tensor;
  Write write = Write::overwrite;
};

}  // namespace llmtrain
