// SPDX-License-Identifier: Apache-2.0
/// The time model: seconds of an operation and of a batch of collectives on given hardware. Pure functions of shapes; every
/// result is a prediction.
#pragma once

#include <span>

#include "llmtrain/backend/observer.hpp"
#include "llmtrain/config/hardware.hpp"

namespace llmtrain {

/// How a group lies on the nodes.
struct GroupPlacement {
  int size = 1;
  int nodes = 1;
  int fewest_on_node = 1;  ///< members on the node that has the fewest
};
GroupPlacement place_group(std::span<const int> world_ranks, int ranks_a_node);

/// Bytes that each rank sends in a ring for a collective of which the larger tensor has `bytes`; a transfer sends them all.
double sent_bytes(std::string_view collective, double bytes, int size);

/// Bytes that an operation moves to and from memory, if it reads and writes every operand once.
double moved_bytes(const OpNote& note);

/// Tokens of a sequence, from the FLOPs of attention_forward or attention_backward.
double attention_sequence(const OpNote& note);

/// Matrix products by 2 m n k and shape, attention by the causal half, everything else by the bytes of its operands.
double operation_seconds(const Hardware& hardware, const OpNote& note);

/// Of a batch: how long it takes, and how much longer what is computed beside it.
struct BatchSeconds {
  double batch = 0, felt = 0;
};

/// Sent bytes over the slower of the link inside a node and the links of all members of a node to the next one, and
/// latency for each doubling of the group. Shifts go over each member's own link to its partner, with one latency, or over
/// the copy engines of a node.
BatchSeconds batch_seconds(const Hardware& hardware, const GroupPlacement& placement,
                           std::span<const CollectiveNote> collectives);

}  // namespace llmtrain
