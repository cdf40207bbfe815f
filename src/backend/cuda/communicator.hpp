// SPDX-License-Identifier: Apache-2.0
/// NcclCommunicator: collectives of one group by NCCL, or by copy engines where they only move data, on a stream of their
/// own.
#pragma once

#include <nccl.h>

#include <memory>

#include "device.hpp"
#include "llmtrain/backend/communicator.hpp"
#include "peer_copies.hpp"

namespace llmtrain {

/// A batch is one NCCL group on the communicator's stream: it starts after its `ready` event and the batch before it. The
/// NCCL communicator does not block the host, so that the failure of a peer is seen, and answered by aborting it.
class NcclCommunicator final : public Communicator {
 public:
  /// Collective over the group; the id goes over its MPI communicator. Throws Error(hang) when the others do not come.
  /// With a `workspace` on one of its ranks it is a channel of two.
  NcclCommunicator(CudaDevice& device, const Group& group, const Tensor& workspace);
  /// Finishes what is in flight, unless an error came up or is unwinding the stack.
  ~NcclCommunicator() override;
  NcclCommunicator(const NcclCommunicator&) = delete;
  NcclCommunicator& operator=(const NcclCommunicator&) = delete;

  void check();  ///< throws if NCCL has met an error in the background

 private:
  Event do_submit(std::span<const Op> ops, Event ready) override;
  /// Connects two ranks now. NCCL would at their first transfer, and hold up the host until the partner comes to it: in a
  /// pipeline the partner may at that time be held up by another transfer, with this rank.
  void connect_pair();
  /// The copies of a channel; null where it is none, or NCCL has to do them. Collective over the group.
  std::unique_ptr<PeerCopies> channel_copies(const Tensor& staging);
  void issue(const Op& op) const;
  /// Copies for batches of this kind; null where NCCL has to do them. Collective over the group the first time.
  PeerCopies* copies_for(std::span<const Op> ops);
  void copy_to_itself(const Op& op) const;
  /// Waits until a call that returned `status` is through; a failure, or too long a wait, breaks the communicator.
  void settle(ncclResult_t status, const char* call);
  [[noreturn]] void break_off(const std::string& why);

  CudaDevice& cuda_;
  Stream stream_;
  ncclComm_t comm_ = nullptr;
  bool broken_ = false;
  bool asked_peers_ = false;
  std::unique_ptr<PeerCopies> peers_;  ///< null before they are asked for, and where there are none
};

}  // namespace llmtrain
