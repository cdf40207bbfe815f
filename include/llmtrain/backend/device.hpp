// SPDX-License-Identifier: Apache-2.0
/// The seam: Device, and the Stream and Event value handles it serves. No vendor header is seen above this file.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "llmtrain/backend/tensor.hpp"
#include "llmtrain/base/mpi.hpp"

namespace llmtrain {

class Communicator;
class Device;
class Kernels;
class OpObserver;

enum class DeviceKind { cpu, cuda };
enum class MemorySpace { device, pinned_host };

/// Something that has happened once all work before its record() is done. A null event has always happened.
struct Event {
  Device* device = nullptr;
  std::uint64_t id = 0;
};

/// An in-order queue of work on a device; a value handle.
struct Stream {
  Device* device = nullptr;
  int id = 0;

  Event record() const;          ///< marks the work issued so far
  void wait(Event event) const;  ///< later work on this stream runs after `event`; the host does not wait
  void synchronize() const;      ///< the host waits until all issued work is done; not for the hot path
};

/// A named group of ranks that communicate along one axis; `comm` is null on the trace back end.
struct Group {
  std::string name;              ///< "tp", "shard", "replicate", "world", ...
  int rank = 0;                  ///< of this process in the group
  std::vector<int> world_ranks;  ///< members, in group order
  MpiComm comm;
  int size() const { return static_cast<int>(world_ranks.size()); }
  /// The rank so many places on around the ring of all, or back; less than once around.
  int at_distance(int distance) const { return (rank + distance + size()) % size(); }
};

/// One processor with its memory, streams, kernels and communicators. Implemented by backend/cpu, cuda and trace.
class Device {
 public:
  virtual ~Device() = default;

  /// The kind whose rules (workspace sizes, vocabulary multiple) apply; the trace back end answers for its target.
  virtual DeviceKind kind() const = 0;
  /// False where nothing is computed (trace): tensors have addresses that must not be read.
  virtual bool executes() const = 0;
  /// One line for the start-up summary: processor, threads, instruction set.
  virtual std::string describe() const = 0;
  /// Dense peak in FLOP/s for MFU, with `precision` "fp32", "bf16" or "fp64"; 0 if unknown. `formula` says how it
  /// was found.
  virtual double peak_flops(DType precision, std::string* formula) const = 0;

  /// Whether it multiplies matrices of fp8.
  virtual bool multiplies_fp8() const { return true; }

  /// NUMA node of the host that the device is attached to; -1 where it is the host's own processor or nobody knows.
  virtual int numa_node() const { return -1; }

  /// One line for whoever asks to compute in this precision, where the device does it in a poor way; else empty.
  virtual std::string caution(DType) const { return {}; }

  virtual Kernels& kernels() = 0;

  /// Told of everything that is issued, in issue order; null for nobody. Not owned.
  void set_observer(OpObserver* observer) {
    observer_ = observer;
    do_observe(observer);
  }
  OpObserver* observer() const { return observer_; }

  /// A new in-order stream.
  virtual Stream make_stream(const std::string& name) = 0;
  Event record(Stream stream);
  void wait(Stream stream, Event event);
  void synchronize(Stream stream);

  /// Seconds that streams stood still at waits for batches, by the group's name, since the last call: communication that
  /// nothing hid. The streams that wait must have been synchronized.
  virtual std::map<std::string, double> take_exposed() { return {}; }

  /// `bytes` of zeroed memory aligned to 256, or null when there is not enough. Only memory/arena calls this.
  virtual void* allocate(std::int64_t bytes, MemorySpace space) = 0;
  virtual void release(void* pointer, MemorySpace space) = 0;

  /// Copies dense bytes between device and host memory, in stream order; host memory must stay valid until the stream
  /// has been synchronized or, for an upload, an event recorded later has happened.
  void upload(Stream stream, Tensor destination, const void* source);
  void download(Stream stream, void* destination, Tensor source);

  /// A communicator over `group`; `workspace` (uint8, of communicator_workspace() or channel_workspace() bytes) is its
  /// staging memory. Collective over the group.
  virtual std::unique_ptr<Communicator> make_communicator(const Group& group, Tensor workspace) = 0;

 private:
  virtual void do_observe(OpObserver* observer) = 0;  ///< for the kernels
  virtual Event do_record(Stream stream) = 0;
  virtual void do_wait(Stream stream, Event event) = 0;
  virtual void do_synchronize(Stream stream) = 0;
  virtual void do_upload(Stream stream, Tensor destination, const void* source) = 0;
  virtual void do_download(Stream stream, void* destination, Tensor source) = 0;

  OpObserver* observer_ = nullptr;
};

inline Event Stream::record() const { return device->record(*this); }
inline void Stream::wait(Event event) const {
  if (event.device != nullptr) device->wait(*this, event);
}
inline void Stream::synchronize() const { device->synchronize(*this); }

/// The CPU back end: `threads` OpenMP threads.
std::unique_ptr<Device> make_cpu_device(int threads);

/// What a rank says of the GPU that it wants.
struct CudaOptions {
  int local_rank = 0;  ///< among the ranks of its node, which take its GPUs in this order
  int local_ranks = 1;
  bool share = false;          ///< run.share_gpu: several ranks may take one GPU
  bool deterministic = false;  ///< run.deterministic
};
/// Why there is no CUDA back end on this machine (no module beside the program, no driver, no GPU); empty if there is.
std::string why_no_cuda();
/// The CUDA back end, out of the module libllmtrain_cuda.so beside the program. Throws Error(configuration) where
/// why_no_cuda() gives a reason or there are too few GPUs.
std::unique_ptr<Device> make_cuda_device(const CudaOptions& options);

/// The trace back end: computes nothing, answers for `target`; every operation and collective goes to the observer.
std::unique_ptr<Device> make_trace_device(DeviceKind target);

}  // namespace llmtrain
