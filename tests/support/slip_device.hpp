// SPDX-License-Identifier: Apache-2.0
/// A device that forgets: everything goes to the device behind it, but for the one wait or record that a test wants lost.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>

#include "llmtrain/backend/communicator.hpp"
#include "llmtrain/backend/device.hpp"

namespace llmtrain::test {

/// Counts the events waited for and the records, and loses the one whose number is set: every wait for it, or the record.
class SlipDevice final : public Device {
 public:
  explicit SlipDevice(std::unique_ptr<Device> behind) : behind_(std::move(behind)) {}

  /// The device behind, which an observer must watch: it hears what is not lost.
  Device& behind() { return *behind_; }

  std::int64_t lost_event = -1, lost_record = -1;  ///< numbers from 0, in order of first wait and of record
  std::int64_t events() const { return static_cast<std::int64_t>(events_.size()); }
  std::int64_t records() const { return records_; }
  /// Starts counting afresh.
  void restart() {
    events_.clear();
    records_ = 0;
  }

  DeviceKind kind() const override { return behind_->kind(); }
  bool executes() const override { return behind_->executes(); }
  std::string describe() const override { return behind_->describe(); }
  double peak_flops(DType precision, std::string* formula) const override {
    return behind_->peak_flops(precision, formula);
  }
  Kernels& kernels() override { return behind_->kernels(); }
  Stream make_stream(const std::string& name) override { return {this, behind_->make_stream(name).id}; }
  void* allocate(std::int64_t bytes, MemorySpace space) override { return behind_->allocate(bytes, space); }
  void release(void* pointer, MemorySpace space) override { behind_->release(pointer, space); }
  std::unique_ptr<Communicator> make_communicator(const Group& group, Tensor workspace) override {
    return behind_->make_communicator(group, workspace);
  }

 private:
  void do_observe(OpObserver*) override {}
  Event do_record(Stream stream) override {
    if (records_++ == lost_record) return {};
    return behind_->record({behind_.get(), stream.id});
  }
  void do_wait(Stream stream, Event event) override {
    const auto [at, fresh] = events_.try_emplace(event.id, events());
    if (at->second != lost_event) behind_->wait({behind_.get(), stream.id}, event);
  }
  void do_synchronize(Stream stream) override { behind_->synchronize({behind_.get(), stream.id}); }
  void do_upload(Stream stream, Tensor destination, const void* source) override {
    behind_->upload({behind_.get(), stream.id}, destination, source);
  }
  void do_download(Stream stream, void* destination, Tensor source) override {
    behind_->download({behind_.get(), stream.id}, destination, source);
  }

  std::unique_ptr<Device> behind_;
  std::map<std::uint64_t, std::int64_t> events_;  ///< numbers by id
  std::int64_t records_ = 0;
};

}  // namespace llmtrain::test
