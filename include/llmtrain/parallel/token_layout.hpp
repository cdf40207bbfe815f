// SPDX-License-Identifier: Apache-2.0
/// Where activations change layout over the tensor group: from a rank's part of the stream to all tokens, and from partial
/// sums of all tokens to its part of the stream. Without sequence parallelism a rank's part is all tokens; in a group of
/// one nothing moves.
#pragma once

#include "llmtrain/parallel/context.hpp"

namespace llmtrain {

/// All tokens of a tensor of the stream, [tokens, n].
struct AllTokens {
  Tensor tensor;
  Event arrival;  ///< null where nothing moves
};

/// Starts to gather `part`, which must stay untouched until arrival; memory is taken from `frame` where it is needed.
AllTokens gather_tokens(Context& ctx, ScratchStack::Frame& frame, Tensor part);

/// Where partial results [tokens, n] are to be written that sum_partials() adds up in `part`.
Tensor partial_sums(Context& ctx, ScratchStack::Frame& frame, Tensor part, std::int64_t tokens);

/// Starts to add `partial` over the group, after the work issued so far; this rank's rows of the sum are in `part` at the
/// event.
Event sum_partials(Context& ctx, Tensor part, Tensor partial);

}  // namespace llmtrain
