// SPDX-License-Identifier: Apache-2.0
/// PeerCopies: collectives that only move data, and transfers between stages, by the copy engines of the GPUs of one host.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "device.hpp"
#include "llmtrain/backend/communicator.hpp"

namespace llmtrain {

/// Each rank writes into the memory of the others. No multiprocessor works on it: products beside it keep theirs, and the
/// power that NCCL's kernels would draw. Where a destination lies is told over MPI when a batch is issued; that its memory
/// may be written, and that it has been, by counters in device memory, which streams write and wait for.
class PeerCopies {
 public:
  /// Null where a rank of the group cannot reach the memory of another one (other hosts, GPUs that are hidden or apart), or
  /// where LLMTRAIN_PEER_COPIES=0 forbids it. Collective over the group.
  static std::unique_ptr<PeerCopies> connect(CudaDevice& device, const Group& group);
  PeerCopies(const PeerCopies&) = delete;
  PeerCopies& operator=(const PeerCopies&) = delete;
  /// Lets go of the others' memory, so that they may free it; nothing may be in flight. Collective over the group, once.
  /// Without it, as after an error, all stays mapped until the process ends.
  void close();

  /// Makes the group of two a channel: what rank 0 sends waits in `staging`, memory of rank 1 for the largest message, until
  /// rank 1 receives it. So neither end's host waits for the other's. From then on it takes only these. Collective over
  /// the group.
  void open_channel(const Tensor& staging);
  bool is_channel() const { return staging_ != nullptr; }

  /// Whether this is such a batch: the same answer on all ranks.
  static bool takes(std::span<const Communicator::Op> ops);
  /// Queues them on the stream, behind which they are complete. Every rank of the group queues the same batches in the same
  /// order; but in a channel the host waits until all have come here.
  void queue(cudaStream_t stream, std::span<const Communicator::Op> ops);

 private:
  /// A destination, as the others must know it.
  struct Place {
    cudaIpcMemHandle_t memory;
    std::uint64_t allocation;  ///< number of the memory on its rank
    std::int64_t offset;       ///< in bytes
  };
  /// In device memory, an element for each rank of the group.
  enum class Counter { ready, arrived };

  PeerCopies(CudaDevice& device, const Group& group);
  bool open_counters();  ///< false where that is not possible
  Place place_of(const Tensor& destination);
  char* map(int rank, const Place& place);
  void signal(cudaStream_t stream, int rank, Counter counter, std::uint32_t value);
  void await(cudaStream_t stream, int rank, Counter counter, std::uint32_t value);
  CUdeviceptr address(void* counters, Counter counter, int rank) const;
  /// What of the batch goes to `rank`, whose destinations are `places`.
  void copy(cudaStream_t stream, int rank, std::span<const Communicator::Op> ops, std::span<const Place> places);
  bool goes_to(const Communicator::Op& op, int rank) const;
  void transfer(cudaStream_t stream, const Communicator::Op& op);

  /// What this rank and another one have counted.
  struct Peer {
    void* counters = nullptr;  ///< of that rank, as this one sees them
    std::uint32_t announced = 0, heard = 0, delivered = 0, expected = 0;
  };

  Peer& peer_at(int rank) { return peers_[static_cast<std::size_t>(rank)]; }

  CudaDevice& device_;
  const Group& group_;
  unsigned flush_ = 0;  ///< flag of a wait behind which everything that arrived before is to be seen
  bool closed_ = false;
  void* counters_ = nullptr;
  void* staging_ = nullptr;  ///< of a channel, as this rank sees it
  std::vector<Peer> peers_;
  std::map<std::uint64_t, cudaIpcMemHandle_t> exported_;
  std::map<std::pair<int, std::uint64_t>, void*> mapped_;  ///< by rank and number of the allocation
};

}  // namespace llmtrain
