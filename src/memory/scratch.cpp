// SPDX-License-Identifier: Apache-2.0
/// Frames of temporary memory, and the errors of their misuse.
#include "llmtrain/memory/scratch.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <exception>

#include "llmtrain/base/text.hpp"
#include "llmtrain/memory/plan.hpp"

namespace llmtrain {

namespace {
// Where measuring stacks point: no user address, so that reading is a fault.
constexpr std::uintptr_t measuring_base = std::uintptr_t{1} << 53;
}  // namespace

ScratchStack::ScratchStack(Tensor memory)
    : base_(reinterpret_cast<std::uintptr_t>(memory.data)), capacity_(memory.bytes()) {
  LLMTRAIN_CHECK(memory.is_dense() && base_ % memory_alignment == 0);
}

ScratchStack::ScratchStack() : base_(measuring_base), capacity_(std::int64_t{1} << 62) {}

std::string ScratchStack::live() const {
  std::string text;
  for (std::size_t i = 0; i < open_.size(); ++i) {
    const std::int64_t end = i + 1 < open_.size() ? open_[i + 1].begin : used_;
    text += fmt::format("{}{} {}", i > 0 ? ", " : "", open_[i].name, human_bytes(end - open_[i].begin));
  }
  return text;
}

ScratchStack::Frame::Frame(ScratchStack& stack, const char* name)
    : stack_(stack), depth_(stack.open_.size()), exceptions_(std::uncaught_exceptions()) {
  stack_.open_.push_back({name, stack_.used_});
}

ScratchStack::Frame::~Frame() noexcept(false) {
  const bool unwinding = std::uncaught_exceptions() > exceptions_;
  const bool innermost = stack_.open_.size() == depth_ + 1;
  if (!innermost && !unwinding) {
    fail(ExitCode::internal, "internal error: scratch frame {} is closed out of order; open: {}",
         depth_ < stack_.open_.size() ? stack_.open_[depth_].name : "(already freed)", stack_.live());
  }
  if (depth_ >= stack_.open_.size()) return;
  stack_.used_ = stack_.open_[depth_].begin;
  stack_.open_.resize(depth_);
}

Tensor ScratchStack::Frame::take(DType dtype, std::span<const std::int64_t> shape) {
  if (stack_.open_.size() != depth_ + 1) {  // not require: it would make the text of each take
    fail(ExitCode::internal,
         "internal error: scratch memory is taken from a frame that is not the innermost one; open: {}", stack_.live());
  }
  const std::int64_t bytes = aligned_bytes(dtype, shape);
  if (bytes > stack_.capacity_ - stack_.used_) {
    fail(ExitCode::internal,
         "internal error: scratch memory of {} is full: {} more ({} [{}]) wanted by {}; live: {}; please report this "
         "with the deck and the command",
         human_bytes(stack_.capacity_), human_bytes(bytes), name_of(dtype), fmt::join(shape, ", "),
         stack_.open_.back().name, stack_.live());
  }
  void* data = reinterpret_cast<void*>(stack_.base_ + static_cast<std::uintptr_t>(stack_.used_));
  stack_.used_ += bytes;
  stack_.high_water_ = std::max(stack_.high_water_, stack_.used_);
  return Tensor::dense(data, dtype, shape);
}

}  // namespace llmtrain
