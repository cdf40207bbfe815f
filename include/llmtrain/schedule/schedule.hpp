// SPDX-License-Identifier: Apache-2.0
/// Pipeline schedules as data: which micro-batch, where, when, and what crosses the boundaries between stages. A schedule is
/// a pure function; adding one is one file in src/schedule and one row in the registry there.
///
/// The model is cut into stages x chunks pieces; piece p is chunk p / stages of stage p % stages. Each boundary has a channel
/// for activations and one for gradients, from one stage to the next (with chunks: from the last to the first, too).
#pragma once

#include <cstdint>
#include <vector>

#include "llmtrain/config/deck.hpp"

namespace llmtrain {

/// One thing a stage does. Transfers are started and not waited for: a forward or backward waits for what it needs.
struct Action {
  enum class Kind { forward, backward, receive_input, send_output, receive_gradient, send_gradient };
  Kind kind = Kind::forward;
  std::int64_t micro_batch = 0;
  int chunk = 0;
  int slot = 0;  ///< of forward and backward: the chunk's activation memory that a forward fills and its backward frees
  // Numbers of the rank's boundary tensors; -1: none.
  int input = -1;     ///< of the first layer; lives until the backward is over
  int output = -1;    ///< of the last layer, where another piece follows
  int gradient = -1;  ///< of the output, then of the input; the last piece's forward writes it

  bool computes() const { return kind == Kind::forward || kind == Kind::backward; }
};

/// What a schedule is computed for.
struct ScheduleShape {
  int stages = 1;
  int stage = 0;
  std::int64_t micro_batches = 1;
  int chunks = 1;

  int pieces() const { return stages * chunks; }
  int piece(int chunk) const { return chunk * stages + stage; }
};

/// The actions of one stage in order. Interleaved needs at least as many micro-batches as stages.
std::vector<Action> make_schedule(ScheduleKind kind, const ScheduleShape& shape);

/// Forward passes alone (evaluation), all in slot 0.
std::vector<Action> make_forward_schedule(const ScheduleShape& shape);

/// Activation slots that a chunk needs for a list of actions: its micro-batches in flight.
int slots_of(const std::vector<Action>& actions, int chunk = 0);

/// How many boundary tensors of each use a list of actions needs.
struct BoundaryCounts {
  int inputs = 0;
  int outputs = 0;
  int gradients = 0;
};
BoundaryCounts boundaries_of(const std::vector<Action>& actions);

}  // namespace llmtrain
