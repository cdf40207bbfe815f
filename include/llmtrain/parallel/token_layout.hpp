// SPDX-License-Identifier: Apache-2.0
/// Where activations change layout over the tensor group: from a rank's part of the stream to all tokens, and from partial
/// sums of all tokens to its part of the stream. Without sequence parallelism a rank's part is all tokens; in a group of
/// one nothing moves.
#pragma once

#include <cstddef>
#include <vector>

#include "llmtrain/parallel/context.hpp"

namespace llmtrain {

/// The tokens that one rank of the group holds, among all of them: rows [first, first + tensor.rows()).
struct TokenPart {
  Tensor tensor;
  std::int64_t first = 0;
  Event arrival{};

  /// Its rows of `all` tokens; nothing of nothing.
  Tensor of(Tensor all) const { return all ? all.rows_at(first, tensor.rows()) : all; }
};

/// All tokens of a tensor of the stream, [tokens, n].
struct AllTokens {
  Tensor tensor;
  Event arrival;                 ///< null where nothing moves
  std::vector<TokenPart> parts;  ///< in the order in which they are there, this rank's own first
};

/// Starts to gather `part`, which must stay untouched until arrival; memory is taken from `frame` where it is needed.
AllTokens gather_tokens(Context& ctx, ScratchStack::Frame& frame, Tensor part);

/// Where partial results [tokens, n] are to be written that sum_partials() adds up in `part`.
Tensor partial_sums(Context& ctx, ScratchStack::Frame& frame, Tensor part, std::int64_t tokens);

/// Starts to add `partial` over the group, after the work issued so far; this rank's rows of the sum are in `part` at the
/// event.
Event sum_partials(Context& ctx, Tensor part, Tensor partial);

/// As these two, but every rank's tokens leave as soon as this rank's contribution to them has been computed: while it
/// computes those of the next.
class TokenSums {
 public:
  /// The sums of this rank's part of the stream come to `sum`; memory is taken from `frame`.
  TokenSums(Context& ctx, ScratchStack::Frame& frame, Tensor sum, std::int64_t tokens);

  /// Calls write(part) for each rank's tokens, this rank's own last: it issues the work that writes part.tensor.
  template <class Write>
  void contribute(const Write& write) {
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      write(parts_[i]);
      send(i);
    }
  }
  /// What is issued from now on finds the sums.
  void finish();

 private:
  void send(std::size_t part);

  Context& ctx_;
  Tensor sum_;
  std::vector<TokenPart> parts_;
  std::vector<Tensor> terms_;  ///< contributions to this rank's tokens, by rank; none without sequence parallelism
  Event arrival_;
};

}  // namespace llmtrain
