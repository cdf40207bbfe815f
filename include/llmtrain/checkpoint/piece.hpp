// SPDX-License-Identifier: Apache-2.0
/// What a checkpoint is made of: pieces of global tensors in host memory, and the few numbers that a resume needs.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "llmtrain/base/dtype.hpp"

namespace llmtrain {

/// A contiguous part of one global array, as one rank holds it. The rank has a box of the array (its tensor-parallel
/// slice); of this box, read row-major as one flat array, it owns the elements [flat_begin, flat_end).
/// A section may be cut in any number of pieces over any ranks; together they must cover it exactly once.
struct Piece {
  std::string dataset;                     ///< full path, e.g. "/model/layers/0/self_attn/q_proj/weight"
  DType dtype = DType::fp32;               ///< of file and memory: no conversion
  std::vector<std::int64_t> global_shape;  ///< 1 to 8 extents, each at least 1
  std::vector<std::int64_t> slice_start;   ///< first index of the box in each extent
  std::vector<std::int64_t> slice_shape;   ///< extents of the box
  std::int64_t flat_begin = 0;             ///< elements
  std::int64_t flat_end = 0;               ///< elements
  void* data = nullptr;                    ///< host memory of size() elements; a save only reads it

  std::int64_t size() const { return flat_end - flat_begin; }
  std::int64_t bytes() const { return size() * size_of(dtype); }
};

/// The state of a run besides its tensors. All of it is global: nothing here depends on the layout, so any layout can
/// go on from it.
struct CheckpointState {
  std::int64_t step = 0;                         ///< updates done
  std::string run_id;                            ///< digest of what defines the run
  std::string deck;                              ///< canonical text of the resolved deck
  std::int64_t samples = 0;                      ///< the data horizon that fixes the order of samples
  std::map<std::string, std::int64_t> counters;  ///< e.g. skipped updates; names [A-Za-z0-9._-]+
  std::map<std::string, std::string> identity;   ///< digests of data and tokenizer, compared on resume
};

}  // namespace llmtrain
