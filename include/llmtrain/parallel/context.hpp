// SPDX-License-Identifier: Apache-2.0
/// What a layer needs to compute: kernels, the stream they run on, scratch memory, and the ranks it shares its weights with.
#pragma once

#include "llmtrain/backend/communicator.hpp"
#include "llmtrain/backend/kernels.hpp"
#include "llmtrain/memory/scratch.hpp"

namespace llmtrain {

/// The ranks that cut the model's matrices among them. With sequence parallelism the stream between the linear layers is
/// cut by tokens too: a rank holds rows [first_row, first_row + rows) of a micro-batch's tokens.
struct TensorGroup {
  Communicator* communicator = nullptr;  ///< null in a group of one
  int rank = 0;
  int size = 1;
  bool sequence = false;

  std::int64_t rows(std::int64_t tokens) const { return sequence ? tokens / size : tokens; }
  std::int64_t first_row(std::int64_t tokens) const { return sequence ? rank * rows(tokens) : 0; }
};

class Fp8Weights;

struct Context {
  Kernels& kernels;
  Stream stream;
  ScratchStack& scratch;
  TensorGroup tensor{};
  Fp8Weights* fp8 = nullptr;  ///< where linear layers multiply in fp8: the copies of weights that are kept
};

/// A gradient accumulator as a layer sees it. The store decides whether the layer's result is the step's first.
struct Gradient {
  Tensor tensor;
  Write write = Write::overwrite;
};

}  // namespace llmtrain
