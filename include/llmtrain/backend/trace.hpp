// SPDX-License-Identifier: Apache-2.0
/// TraceRecorder: the observer that adds up what was issued; on the trace device it is the plan of a step, on a real
/// device its profile in bytes and FLOPs.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "llmtrain/backend/gemm_choices.hpp"
#include "llmtrain/backend/observer.hpp"

namespace llmtrain {

class TraceRecorder final : public OpObserver {
 public:
  struct OperationTotal {
    std::int64_t calls = 0;
    std::int64_t bytes_read = 0;
    std::int64_t bytes_written = 0;
    double flops = 0;
  };
  struct CollectiveTotal {
    std::int64_t calls = 0;
    std::int64_t bytes = 0;  ///< payload of this rank: of the larger of source and destination
  };
  /// One operation or collective as issued, in order.
  struct Note {
    std::string name;
    std::string group;  ///< empty for operations
    int stream = 0;     ///< of operations
    std::vector<Tensor> writes;
    std::vector<Tensor> reads;
    double flops = 0;
  };

  /// `keep_notes`: also keep every note, not only totals.
  explicit TraceRecorder(bool keep_notes = false) : keep_notes_(keep_notes) {}

  void on_operation(const OpNote& note) override;
  void on_batch(const BatchNote& batch) override;

  const std::map<std::string, OperationTotal>& operations() const { return operations_; }
  /// By (group name, collective).
  const std::map<std::pair<std::string, std::string>, CollectiveTotal>& collectives() const { return collectives_; }
  /// Batches by group name.
  const std::map<std::string, std::int64_t>& batches() const { return batches_; }
  /// Calls of each matrix product.
  const std::map<GemmKey, std::int64_t>& products() const { return products_; }
  double flops() const;  ///< of all operations
  const std::vector<Note>& notes() const { return notes_; }

  /// Adds `times` what the totals of `longer` are more than these.
  void extrapolate(const TraceRecorder& longer, std::int64_t times);

  void clear();               ///< forgets totals and notes
  std::string table() const;  ///< both totals, one line each

 private:
  bool keep_notes_;
  std::map<std::string, OperationTotal> operations_;
  std::map<std::pair<std::string, std::string>, CollectiveTotal> collectives_;
  std::map<std::string, std::int64_t> batches_;
  std::map<GemmKey, std::int64_t> products_;
  std::vector<Note> notes_;
};

}  // namespace llmtrain
