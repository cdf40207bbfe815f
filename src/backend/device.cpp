// SPDX-License-Identifier: Apache-2.0
/// What every device tells its observer.
#include "llmtrain/backend/device.hpp"

#include "llmtrain/backend/observer.hpp"
#include "llmtrain/base/beacon.hpp"

namespace llmtrain {

Event Device::record(Stream stream) {
  Beacon::beat();
  const Event event = do_record(stream);
  if (observer_ != nullptr) observer_->on_record(stream, event);
  return event;
}

void Device::wait(Stream stream, Event event) {
  do_wait(stream, event);
  if (observer_ != nullptr) observer_->on_wait(stream, event);
}

void Device::synchronize(Stream stream) {
  do_synchronize(stream);
  if (observer_ != nullptr) observer_->on_synchronize(stream);
}

void Device::upload(Stream stream, Tensor destination, const void* source) {
  LLMTRAIN_CHECK(destination.is_dense());
  if (observer_ != nullptr) observer_->on_operation({"upload", stream, std::span(&destination, 1), {}, 0});
  do_upload(stream, destination, source);
}

void Device::download(Stream stream, void* destination, Tensor source) {
  LLMTRAIN_CHECK(source.is_dense());
  if (observer_ != nullptr) observer_->on_operation({"download", stream, {}, std::span(&source, 1), 0});
  do_download(stream, destination, source);
}

}  // namespace llmtrain
