// SPDX-License-Identifier: Apache-2.0
/// CudaDevice: one GPU as a Device. Work is queued on CUDA streams; the host waits in synchronize() only.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cuda/cuda_kernels.hpp"
#include "llmtrain/backend/device.hpp"
#include "profile.hpp"
#include "ranges.hpp"
#include "wait_times.hpp"

namespace llmtrain {

class NcclCommunicator;

/// So much memory, or somewhat more, of which no other allocation shares a part: what another process opens through CUDA
/// IPC is a whole block of 2 MiB (CUDA programming guide, interprocess communication).
constexpr std::size_t exportable_bytes(std::size_t bytes) {
  constexpr std::size_t block = std::size_t{2} << 20;
  return (bytes + block - 1) / block * block;
}

/// Why no GPU can be used; empty if there is one.
std::string why_no_gpu_here();

class CudaDevice final : public Device {
 public:
  /// Takes GPU number local_rank; with `share`, modulo the number of GPUs. Throws Error(configuration) where there are too
  /// few.
  explicit CudaDevice(const CudaOptions& options);
  ~CudaDevice() override;
  CudaDevice(const CudaDevice&) = delete;
  CudaDevice& operator=(const CudaDevice&) = delete;

  DeviceKind kind() const override { return DeviceKind::cuda; }
  bool executes() const override { return true; }
  std::string describe() const override;
  double peak_flops(DType precision, std::string* formula) const override;
  bool multiplies_fp8() const override { return 10 * properties_.major + properties_.minor >= 89; }
  int numa_node() const override;

  Kernels& kernels() override { return *kernels_; }

  Stream make_stream(const std::string& name) override;
  void* allocate(std::int64_t bytes, MemorySpace space) override;
  void release(void* pointer, MemorySpace space) override;
  std::map<std::string, double> take_exposed() override { return wait_times_.take(); }
  std::unique_ptr<Communicator> make_communicator(const Group& group, Tensor workspace) override;

  int number() const { return number_; }  ///< of the GPU, among those that this process sees
  const cudaUUID_t& uuid() const { return properties_.uuid; }

  // What communicators ask of the device; it is the batch that the observer is told of.
  /// A stream whose kernels get the multiprocessors that come free before those of computing streams, whose kernels wait
  /// in greater numbers: else a collective that is meant to run beside a product would start when that has ended.
  Stream make_communication_stream() { return {this, streams_.add(CudaStreams::Priority::high)}; }
  Event mark(Stream stream, const Group& group);
  void follow(Stream stream, Event event);
  /// Memory of this device that allocate() gave; no two have the same number.
  struct Allocation {
    char* base;
    std::int64_t bytes;
    std::uint64_t number;
  };
  Allocation allocation_of(const void* pointer) const;
  cudaStream_t native(Stream stream) const { return streams_[stream]; }
  void attach(NcclCommunicator* communicator) { communicators_.push_back(communicator); }
  void detach(NcclCommunicator* communicator) { std::erase(communicators_, communicator); }

 private:
  void do_observe(OpObserver* observer) override;
  Event do_record(Stream stream) override;
  void do_wait(Stream stream, Event event) override;
  void do_synchronize(Stream stream) override;
  void do_upload(Stream stream, Tensor destination, const void* source) override;
  void do_download(Stream stream, void* destination, Tensor source) override;

  /// CUDA events are used in a ring; `id` is that of the last Event made from one.
  struct Mark {
    cudaEvent_t event = nullptr;
    std::uint64_t id = 0;
    std::string group;  ///< of the batch that it ends; empty: of no batch
  };
  const Mark* pending(Event event) const;  ///< null: it happened long ago

  /// A wait of the host until `query` gives cudaSuccess. Polled, so that a communicator whose peer has failed ends it, and so
  /// that whoever watches this process sees the GPU get on.
  template <class Query>
  void await(const Query& query);
  void await(cudaEvent_t event);
  bool gets_on();                  ///< whether marks have happened since the last call
  std::string unfinished() const;  ///< what the GPU is likely to wait for

  /// Pinned memory through which uploads pass, so that the source is free at once and the copy runs by itself.
  struct Staging {
    void* data = nullptr;
    cudaEvent_t copied = nullptr;
  };

  /// A small copy to the host on its way through pinned memory: the driver would make the host wait for a copy to other
  /// memory, deaf to the failure of a peer. It is handed on when the stream has been synchronized.
  struct Download {
    int stream;
    void* destination;
    std::int64_t begin, bytes;  ///< in the pinned memory
  };

  int number_;  ///< of the GPU on this node
  bool shared_;
  cudaDeviceProp properties_{};
  CudaStreams streams_;
  std::unique_ptr<CudaKernels> kernels_;
  std::vector<Mark> marks_;
  std::uint64_t recorded_ = 0;
  std::uint64_t happened_ = 0;  ///< all marks up to this one are known to have
  WaitTimes wait_times_;
  std::array<Staging, 32> staging_;  ///< more than a micro-batch uploads: the host does not wait for the one before
  std::size_t next_staging_ = 0;
  char* landing_ = nullptr;  ///< pinned memory of downloads
  std::vector<Download> downloads_;
  std::unique_ptr<WaitCheck> wait_check_;  ///< null unless asked for
  DeviceRanges ranges_;
  std::unique_ptr<OperationProfile> profile_;  ///< null unless asked for
  std::vector<NcclCommunicator*> communicators_;
  std::vector<Allocation> allocations_;
  std::uint64_t allocated_ = 0;  ///< in all
};

}  // namespace llmtrain
