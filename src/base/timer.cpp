// SPDX-License-Identifier: Apache-2.0
/// Book-keeping of the timer ranges: a tree with few nodes, searched in order.
#include "llmtrain/base/timer.hpp"

namespace llmtrain {

RangeObserver* Timers::observer_ = nullptr;

int Timers::open(std::string_view name) {
  const int count = static_cast<int>(nodes_.size());
  int index = 0;
  while (index < count && (nodes_[index].parent != current_ || nodes_[index].name != name)) ++index;
  if (index == count) {
    const std::string prefix = current_ == top ? std::string() : totals_[current_].path + "/";
    nodes_.push_back({std::string(name), current_});
    totals_.push_back({prefix + std::string(name)});
  }
  current_ = index;
  if (observer_ != nullptr) observer_->begin(nodes_[index].name.c_str());
  return index;
}

void Timers::close(int index, double seconds) {
  totals_[index].calls += 1;
  totals_[index].seconds += seconds;
  current_ = nodes_[index].parent;
  if (observer_ != nullptr) observer_->end();
}

void Timers::reset() {
  for (TimerTotal& total : totals_) {
    total.calls = 0;
    total.seconds = 0;
  }
}

}  // namespace llmtrain
