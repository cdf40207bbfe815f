// SPDX-License-Identifier: Apache-2.0
/// The trace back end: a device that computes nothing, so that the plan of any rank of any world can be made anywhere.
#include "kernels.hpp"
#include "llmtrain/backend/communicator.hpp"
#include "llmtrain/backend/observer.hpp"

namespace llmtrain {

namespace {

// Tensors point from here on: beyond the user addresses of x86-64 and AArch64 (2^47 and 2^48, or 2^52), so that reading one
// is a fault and not a wrong number.
constexpr std::uintptr_t first_address = std::uintptr_t{1} << 52;

class TraceDevice final : public Device {
 public:
  explicit TraceDevice(DeviceKind target) : target_(target), kernels_(target) {}

  DeviceKind kind() const override { return target_; }
  bool executes() const override { return false; }
  std::string describe() const override {
    return target_ == DeviceKind::cpu ? "trace of a CPU (nothing is computed)"
                                      : "trace of a CUDA device (nothing is computed)";
  }
  double peak_flops(DType, std::string* formula) const override {
    if (formula != nullptr) *formula = "unknown: a trace has no clock";
    return 0;
  }

  Kernels& kernels() override { return kernels_; }
  Stream make_stream(const std::string&) override { return {this, streams_++}; }

  void* allocate(std::int64_t bytes, MemorySpace) override {
    LLMTRAIN_CHECK(bytes >= 0);
    const std::uintptr_t address = next_address_;
    next_address_ += (static_cast<std::uintptr_t>(bytes) / 256 + 1) * 256;  // distinct even for 0 bytes
    return reinterpret_cast<void*>(address);
  }
  void release(void*, MemorySpace) override {}

  std::unique_ptr<Communicator> make_communicator(const Group& group, Tensor) override {
    return std::make_unique<TraceCommunicator>(*this, group);
  }

 private:
  class TraceCommunicator final : public Communicator {
   public:
    TraceCommunicator(TraceDevice& device, const Group& group) : Communicator(device, group), trace_(device) {}

   private:
    Event do_submit(std::span<const Op>, Event) override { return trace_.new_event(); }
    TraceDevice& trace_;
  };

  void do_observe(OpObserver* observer) override { kernels_.set_observer(observer); }
  Event do_record(Stream) override { return new_event(); }
  void do_wait(Stream, Event) override {}
  void do_synchronize(Stream) override {}
  void do_upload(Stream, Tensor, const void*) override {}
  void do_download(Stream, void*, Tensor) override {}
  Event new_event() { return {this, ++events_}; }

  DeviceKind target_;
  TraceKernels kernels_;
  int streams_ = 0;
  std::uint64_t events_ = 0;
  std::uintptr_t next_address_ = first_address;
};

}  // namespace

std::unique_ptr<Device> make_trace_device(DeviceKind target) { return std::make_unique<TraceDevice>(target); }

}  // namespace llmtrain
