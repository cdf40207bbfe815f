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

/// Host memory for pieces whose tensors the host cannot read; empty where it can (CPU back end).
class StateMirror {
 public:
  /// Lists the pieces of this rank; their data points into tensors, or into this object.
  StateMirror(Parts& parts, StatePart part);
  std::vector<Piece>& pieces() { return pieces_; }

  void download();  ///< tensors -> pieces, for a save
  void upload();    ///< pieces -> tensors, after a load; also refreshes the weights

 private:
  struct Copy {
    Tensor tensor;
    std::size_t piece;
  };
  void add(const std::string& prefix, int storage, Tensor flat, StatePart part);

  Parts& parts_;
  std::vector<Piece> pieces_;
  std::vector<Copy> copies_;
  std::vector<std::vector<std::byte>> host_;
};

}  // namespace llmtrain
