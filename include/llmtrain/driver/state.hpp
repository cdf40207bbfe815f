// SPDX-License-Identifier: Apache-2.0
/// The training state as pieces of global tensors: master weights and moments under their checkpoint names.
#pragma once

#include <cstddef>
#include <vector>

#include "llmtrain/checkpoint/piece.hpp"
#include "llmtrain/driver/parts.hpp"

namespace llmtrain {

/// Which part of the state a rank lists.
enum class StatePart {
  owned,    ///< its chunk: over all ranks, every element once (save)
  updated,  ///< what it updates: everything under ZeRO-0 (load)
};

/// Bytes of one parameter's master weight and moments.
std::int64_t state_bytes_of_element(const StoreTypes& types);

/// Bytes of the pieces that a rank owns.
std::int64_t owned_state_bytes(const StoreShape& shape);

/// Host memory for pieces: a buffer where one is given; else of its own where the host cannot read tensors, and the
/// tensors themselves where it can (CPU back end).
class StateMirror {
 public:
  /// Lists the pieces of this rank; their data points into `buffer`, into tensors, or into this object.
  StateMirror(Parts& parts, StatePart part, Tensor buffer = {});
  std::vector<Piece>& pieces() { return pieces_; }

  void download();  ///< tensors -> pieces, for a save
  void upload();    ///< pieces -> tensors, after a load; also refreshes the weights

 private:
  struct Copy {
    Tensor tensor;
    std::size_t piece;
  };
  void add(const std::string& prefix, int storage, Tensor flat, StatePart part);

  std::byte* host_memory(std::int64_t bytes);

  Parts& parts_;
  Tensor buffer_;
  std::int64_t used_ = 0;  ///< bytes of the buffer
  std::vector<Piece> pieces_;
  std::vector<Copy> copies_;
  std::vector<std::vector<std::byte>> host_;
};

}  // namespace llmtrain
