// SPDX-License-Identifier: Apache-2.0
/// What the stores tell the observer of a device about their leases.
#pragma once

#include <vector>

#include "llmtrain/backend/device.hpp"
#include "llmtrain/backend/observer.hpp"

namespace llmtrain {

inline void note_lease(Stream stream, LeaseNote::Kind kind, const char* name = "",
                       std::span<const Tensor> tensors = {}) {
  if (OpObserver* const observer = stream.device->observer()) observer->on_lease({kind, name, tensors});
}

/// A store's own work on memory that it lends, as long as this lives.
class OwnLease {
 public:
  OwnLease(Stream stream, const char* name, std::vector<Tensor> tensors)
      : stream_(stream), name_(name), tensors_(std::move(tensors)) {
    note_lease(stream_, LeaseNote::Kind::begins, name_, tensors_);
  }
  ~OwnLease() { note_lease(stream_, LeaseNote::Kind::ends, name_, tensors_); }
  OwnLease(const OwnLease&) = delete;
  OwnLease& operator=(const OwnLease&) = delete;

 private:
  Stream stream_;
  const char* name_;
  std::vector<Tensor> tensors_;
};

}  // namespace llmtrain
