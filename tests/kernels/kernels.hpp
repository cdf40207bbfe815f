// SPDX-License-Identifier: Apache-2.0
/// The kernels under test (those of the CPU; with LLMTRAIN_TEST_DEVICE=cuda in the environment, those of a GPU), and an
/// observer that keeps what they note.
#pragma once

#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "cpu/cpu_kernels.hpp"
#include "harness.hpp"
#include "llmtrain/backend/observer.hpp"
#include "mirror.hpp"

namespace llmtrain::test {

inline DeviceKind device_kind() {
  static const char* const name = std::getenv("LLMTRAIN_TEST_DEVICE");
  return name != nullptr && std::string(name) == "cuda" ? DeviceKind::cuda : DeviceKind::cpu;
}

inline Kernels& kernels() {
  static const std::unique_ptr<Kernels> instance =
      device_kind() == DeviceKind::cuda ? std::make_unique<MirrorKernels>(make_cuda_device({})) : make_cpu_kernels();
  return *instance;
}

/// Keeps the notes of the operations issued while it lives.
class Notes final : public OpObserver {
 public:
  struct Note {
    std::string name;
    std::vector<Tensor> writes, reads;
    double flops;
  };

  Notes() { kernels().set_observer(this); }
  ~Notes() override { kernels().set_observer(nullptr); }
  Notes(const Notes&) = delete;
  Notes& operator=(const Notes&) = delete;

  void on_operation(const OpNote& note) override {
    notes.push_back(
        {note.name, {note.writes.begin(), note.writes.end()}, {note.reads.begin(), note.reads.end()}, note.flops});
  }
  void on_batch(const BatchNote&) override {}

  std::vector<Note> notes;
};

}  // namespace llmtrain::test
