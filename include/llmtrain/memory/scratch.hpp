// SPDX-License-Identifier: Apache-2.0
/// ScratchStack: temporary tensors with the lifetime of a scope, over one slot of the plan.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <vector>

#include "llmtrain/backend/tensor.hpp"

namespace llmtrain {

/// Frames open and close in stack order; closing one frees what it took. Contents are left as they are.
class ScratchStack {
 public:
  class Frame {
   public:
    /// `name` stands in errors: what the memory is for. Must outlive the frame.
    Frame(ScratchStack& stack, const char* name);
    /// Throws Error(internal) when frames opened later are still open (unless an error is unwinding the stack).
    ~Frame() noexcept(false);
    Frame(const Frame&) = delete;
    Frame& operator=(const Frame&) = delete;

    /// A dense tensor, aligned to 256 bytes. Error(internal) naming what is live when the stack is full, or when this
    /// is not the innermost frame.
    Tensor take(DType dtype, std::span<const std::int64_t> shape);
    Tensor take(DType dtype, std::initializer_list<std::int64_t> shape) {
      return take(dtype, std::span(shape.begin(), shape.size()));
    }

   private:
    ScratchStack& stack_;
    std::size_t depth_;
    int exceptions_;  ///< in flight when the frame was opened
  };

  /// Over `memory`: dense uint8.
  explicit ScratchStack(Tensor memory);
  /// Measuring: unlimited, at addresses that must not be read; high_water() is what a real one needs.
  ScratchStack();

  std::int64_t in_use() const { return used_; }
  std::int64_t high_water() const { return high_water_; }  ///< most bytes in use at once so far
  std::int64_t capacity() const { return capacity_; }

 private:
  struct Open {
    const char* name;
    std::int64_t begin;
  };
  std::string live() const;

  std::uintptr_t base_;
  std::int64_t capacity_;
  std::int64_t used_ = 0;
  std::int64_t high_water_ = 0;
  std::vector<Open> open_;
};

}  // namespace llmtrain
