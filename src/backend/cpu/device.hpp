// SPDX-License-Identifier: Apache-2.0
/// CpuDevice: the processor as a Device. Operations run at once on the calling thread (and its OpenMP team), so the only
/// work that can be pending is communication; an Event is a handle to one batch of a communicator, or has
/// happened.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "llmtrain/backend/device.hpp"
#include "llmtrain/backend/kernels.hpp"
#include "llmtrain/backend/observer.hpp"

namespace llmtrain {

class CpuCommunicator;

/// One host thread (the one that started MPI) uses a CpuDevice. Communicators make progress whenever it waits and, one
/// MPI_Testsome each, before every operation. A blocking host-side collective makes none: wait for the events of what is
/// in flight before calling one.
class CpuDevice final : public Device {
 public:
  using KernelsFactory = std::unique_ptr<Kernels> (*)();

  /// The kernels are made on first use.
  CpuDevice(int threads, KernelsFactory make_kernels);
  ~CpuDevice() override;
  CpuDevice(const CpuDevice&) = delete;
  CpuDevice& operator=(const CpuDevice&) = delete;

  DeviceKind kind() const override { return DeviceKind::cpu; }
  bool executes() const override { return true; }
  std::string describe() const override;
  double peak_flops(DType precision, std::string* formula) const override;
  std::string caution(DType precision) const override;

  Kernels& kernels() override;

  Stream make_stream(const std::string& name) override;
  void* allocate(std::int64_t bytes, MemorySpace space) override;
  void release(void* pointer, MemorySpace space) override;
  std::unique_ptr<Communicator> make_communicator(const Group& group, Tensor workspace) override;

  std::map<std::string, double> take_exposed() override { return std::exchange(exposed_, {}); }

  /// Advances every communicator without blocking; true if anything moved.
  bool progress();

  // What communicators tell the device and ask of it.
  int attach(CpuCommunicator* communicator);  ///< returns its slot
  void detach(int slot);
  Event event_of(int slot, std::uint64_t sequence);  ///< of the sequence-th batch (from 1) of that communicator
  bool has_happened(Event event) const;
  void complete(Event event);  ///< blocks until it has happened, then delivers it
  void deliver(Event event);   ///< hands over results that the in-flight check holds back; it must have happened

 private:
  /// Stands between the kernels and the caller's observer: an operation is also a chance to make progress.
  class Boundary final : public OpObserver {
   public:
    explicit Boundary(CpuDevice& device) : device_(device) {}
    void on_operation(const OpNote& note) override;
    void on_batch(const BatchNote&) override {}  // communicators tell the device's observer themselves

   private:
    CpuDevice& device_;
  };

  void do_observe(OpObserver*) override {}  // the boundary asks the device
  Event do_record(Stream stream) override;
  void do_wait(Stream stream, Event event) override;
  void do_synchronize(Stream stream) override;
  void do_upload(Stream stream, Tensor destination, const void* source) override;
  void do_download(Stream stream, void* destination, Tensor source) override;
  CpuCommunicator* communicator_of(Event event) const;

  int threads_;
  KernelsFactory make_kernels_;
  std::unique_ptr<Kernels> kernels_;
  Boundary boundary_{*this};
  int streams_ = 0;
  std::uint64_t records_ = 0;
  std::map<std::string, double> exposed_;
  std::vector<CpuCommunicator*> communicators_;  ///< by slot; null once destroyed, and slots are not used again
};

}  // namespace llmtrain
