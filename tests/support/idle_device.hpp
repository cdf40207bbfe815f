// SPDX-License-Identifier: Apache-2.0
/// A device that has memory and does nothing: for tests of what is asked of a device.
#pragma once

#include <cstdlib>
#include <memory>
#include <string>

#include "llmtrain/backend/communicator.hpp"
#include "llmtrain/backend/device.hpp"

namespace llmtrain::test {

class IdleDevice : public Device {
 public:
  DeviceKind kind() const override { return DeviceKind::cpu; }
  bool executes() const override { return true; }
  std::string describe() const override { return "an idle device"; }
  double peak_flops(DType, std::string*) const override { return 0; }
  Kernels& kernels() override { std::abort(); }
  Stream make_stream(const std::string&) override { return {this, 0}; }
  void* allocate(std::int64_t bytes, MemorySpace) override {
    return std::aligned_alloc(256, static_cast<std::size_t>(bytes));
  }
  void release(void* pointer, MemorySpace) override { std::free(pointer); }
  std::unique_ptr<Communicator> make_communicator(const Group&, Tensor) override { return nullptr; }

 private:
  void do_observe(OpObserver*) override {}
  Event do_record(Stream) override { return {}; }
  void do_wait(Stream, Event) override {}
  void do_synchronize(Stream) override {}
  void do_upload(Stream, Tensor, const void*) override {}
  void do_download(Stream, void*, Tensor) override {}
};

}  // namespace llmtrain::test
