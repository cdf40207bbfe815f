// SPDX-License-Identifier: Apache-2.0
/// What crosses the boundaries of a stage, derived from its order of work.
#include <algorithm>
#include <deque>
#include <map>
#include <set>
#include <utility>

#include "schedules.hpp"

namespace llmtrain {

namespace {

/// Hands out the lowest free number. The last `resting` numbers that were given back are not free yet: their tensors may
/// still be on their way to another rank.
class Numbers {
 public:
  explicit Numbers(std::size_t resting) : resting_(resting) {}
  int take() {
    if (free_.empty()) return count_++;
    return free_.extract(free_.begin()).value();
  }
  void give(int number) {
    returned_.push_back(number);
    if (returned_.size() <= resting_) return;
    free_.insert(returned_.front());
    returned_.pop_front();
  }

 private:
  std::size_t resting_;
  int count_ = 0;
  std::set<int> free_;
  std::deque<int> returned_;
};

/// Writes the actions of one stage.
class TransferWriter {
 public:
  TransferWriter(const ScheduleShape& shape, bool trains)
      : shape_(shape), trains_(trains), outputs_(resting(shape)), gradients_(resting(shape)) {}

  /// Starts what `work` waits for.
  void receive(const Action& work) {
    const bool forward = work.kind == Action::Kind::forward;
    if (forward ? is_first(work) : is_last(work)) return;
    Action action{.micro_batch = work.micro_batch, .chunk = work.chunk};
    if (forward) {
      action.kind = Action::Kind::receive_input;
      action.input = input_[key(work)] = inputs_.take();
    } else {
      action.kind = Action::Kind::receive_gradient;
      action.gradient = gradient_[key(work)] = gradients_.take();
    }
    actions_.push_back(action);
  }
  void run(Action work) { work.kind == Action::Kind::forward ? forward(work) : backward(work); }
  std::vector<Action> take() { return std::move(actions_); }

 private:
  using Key = std::pair<int, std::int64_t>;
  static Key key(const Action& work) { return {work.chunk, work.micro_batch}; }
  bool is_first(const Action& work) const { return shape_.piece(work.chunk) == 0; }
  bool is_last(const Action& work) const { return shape_.piece(work.chunk) == shape_.pieces() - 1; }

  /// One tensor is on its way while the next one is computed. With chunks, the stage after the last one takes over only when
  /// it is through with its group; where groups have more micro-batches than there are stages, the rest waits here.
  static std::size_t resting(const ScheduleShape& shape) {
    if (shape.pieces() == 1) return 0;
    const std::int64_t waiting = shape.chunks > 1 ? largest_group(shape) - shape.stages : 0;
    return static_cast<std::size_t>(1 + std::max<std::int64_t>(waiting, 0));
  }

  void forward(Action work) {
    work.input = is_first(work) ? input_[key(work)] = inputs_.take() : input_.at(key(work));
    if (!trains_) inputs_.give(work.input);
    if (!is_last(work)) {
      work.output = outputs_.take();
      actions_.push_back(work);
      actions_.push_back({.kind = Action::Kind::send_output,
                          .micro_batch = work.micro_batch,
                          .chunk = work.chunk,
                          .output = work.output});
      outputs_.give(work.output);
      return;
    }
    if (trains_) work.gradient = gradient_[key(work)] = gradients_.take();
    actions_.push_back(work);
  }

  void backward(Action work) {
    work.input = input_.at(key(work));
    work.gradient = gradient_.at(key(work));
    actions_.push_back(work);
    if (!is_first(work)) {
      actions_.push_back({.kind = Action::Kind::send_gradient,
                          .micro_batch = work.micro_batch,
                          .chunk = work.chunk,
                          .gradient = work.gradient});
    }
    inputs_.give(work.input);
    gradients_.give(work.gradient);
  }

  const ScheduleShape& shape_;
  bool trains_;
  Numbers inputs_{0}, outputs_, gradients_;
  std::map<Key, int> input_, gradient_;
  std::vector<Action> actions_;
};

}  // namespace

std::vector<Action> with_transfers(const std::vector<Action>& work, const ScheduleShape& shape) {
  const auto is_backward = [](const Action& action) { return action.kind == Action::Kind::backward; };
  TransferWriter writer(shape, std::any_of(work.begin(), work.end(), is_backward));
  if (!work.empty()) writer.receive(work[0]);
  for (std::size_t i = 0; i < work.size(); ++i) {
    if (i + 1 < work.size()) writer.receive(work[i + 1]);
    writer.run(work[i]);
  }
  return writer.take();
}

}  // namespace llmtrain
