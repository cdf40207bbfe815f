// SPDX-License-Identifier: Apache-2.0
/// CpuCommunicator: collectives over non-blocking MPI messages, with reductions of our own in rank order.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "device.hpp"
#include "in_flight_check.hpp"
#include "llmtrain/backend/communicator.hpp"
#include "llmtrain/backend/hazards.hpp"

namespace llmtrain {

class Exchange;

struct CpuCommunicatorOptions {
  bool check_in_flight = debug_checks();
  std::int64_t max_message = std::int64_t{1} << 30;  ///< bytes; longer messages are cut
};

/// Batches run one after the other, each when its `ready` event has happened and the batch before it is complete; the
/// members of a batch run together, in rounds. Gathers, broadcasts, sends and receives go straight between user memory in
/// the first round. Reductions are cut into pieces whose contributions fit into the staging memory: every rank sends its
/// contribution to a range to the range's owner, who combines them in rank order when the round's messages are there;
/// an all-reduce sends the results round with the next round. How a tensor is cut does not change any sum.
class CpuCommunicator final : public Communicator {
 public:
  /// Collective over the group.
  CpuCommunicator(CpuDevice& device, const Group& group, Tensor workspace, CpuCommunicatorOptions options);
  /// Waits until what is in flight has arrived, unless an error came up or is unwinding the stack.
  ~CpuCommunicator() override;
  CpuCommunicator(const CpuCommunicator&) = delete;
  CpuCommunicator& operator=(const CpuCommunicator&) = delete;

  bool advance();  ///< as far as possible without blocking; true if anything moved
  bool has_completed(std::uint64_t sequence) const { return completed_ >= sequence; }
  void deliver(std::uint64_t sequence);  ///< results held back by the in-flight check, up to that batch
  void check_peers();                    ///< throws if a peer issues other collectives than this rank

 private:
  /// Part of a reduction: rank p owns elements [begin + p * stride, ... + count) of the source, cut off at `limit`.
  struct Piece {
    const Op* op;
    std::int64_t begin, stride, count, limit;
    std::byte* staging;  ///< the other ranks' contributions to this rank's range, by rank
  };
  struct Range {
    std::int64_t begin, count;  ///< elements
  };
  /// A submitted batch.
  struct Flight {
    std::uint64_t sequence;
    std::vector<Op> ops;
    Event ready;
    bool started = false;
    std::size_t next_op = 0;         ///< reductions are cut from here on,
    std::int64_t next_element = 0;   ///< from this element of each owner (reduce_scatter) or of the tensor (all_reduce)
    std::vector<Piece> reducing{};   ///< of the running round
    std::vector<Piece> gathering{};  ///< all-reduce pieces whose results go round in it
    std::unique_ptr<InFlightCheck> check{};
  };

  Event do_submit(std::span<const Op> ops, Event ready) override;
  bool advance_flights();
  void check_op(const Op& op) const;
  void start(Flight& flight);
  void post_direct(const Op& op);
  void post_round(Flight& flight);
  bool finish_round(Flight& flight);  ///< false when nothing is left to do
  std::vector<Piece> cut_pieces(Flight& flight);
  void exchange_contributions(const Piece& piece);
  void exchange_results(const Piece& piece);
  void combine(const Piece& piece);
  Range range_of(const Piece& piece, int rank) const;

  CpuDevice& cpu_;
  bool check_in_flight_;
  std::span<std::byte> staging_;
  std::unique_ptr<Exchange> exchange_;
  int slot_;
  std::uint64_t submitted_ = 0;
  std::uint64_t completed_ = 0;
  bool broken_ = false;                                ///< an error was thrown: peers cannot be waited for
  std::deque<Flight> flights_;                         ///< the first one runs
  std::deque<std::unique_ptr<InFlightCheck>> landed_;  ///< complete, not delivered yet
};

}  // namespace llmtrain
