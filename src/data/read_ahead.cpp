// SPDX-License-Identifier: Apache-2.0
/// The thread that reads, and the guess at what is asked for next.
#include "llmtrain/data/read_ahead.hpp"

#include <algorithm>
#include <utility>

#include "llmtrain/base/clock.hpp"
#include "llmtrain/base/error.hpp"

namespace llmtrain {

ReadAhead::ReadAhead(Loader& loader, std::vector<std::int64_t> order, std::int64_t last_step, Timers& timers)
    : loader_(loader),
      order_(std::move(order)),
      timers_(timers),
      last_step_(last_step),
      thread_([this](const std::stop_token& stop) { work(stop); }) {
  LLMTRAIN_CHECK(!order_.empty());
}

ReadAhead::Place ReadAhead::after(Place place) const {
  return place.index + 1 < order_.size() ? Place{place.step, place.index + 1} : Place{place.step + 1, 0};
}

ReadAhead::Place ReadAhead::place_of(std::int64_t step, std::int64_t micro) const {
  const auto found = std::find(order_.begin(), order_.end(), micro);
  LLMTRAIN_CHECK(found != order_.end());
  return {step, static_cast<std::size_t>(found - order_.begin())};
}

void ReadAhead::prepare(std::int64_t step) {
  {
    const std::lock_guard lock(mutex_);
    restart({step, 0});
  }
  changed_.notify_all();
}

MicroBatch ReadAhead::load(std::int64_t step, std::int64_t micro) {
  std::unique_lock lock(mutex_);
  const bool guessed = wanted_ && wanted_->step == step && order_[wanted_->index] == micro && step <= last_step_;
  if (!guessed) {
    restart(place_of(step, micro));
    changed_.notify_all();
  }
  {
    TimerRange range(timers_, "stall");
    if (ready_.empty()) {
      const Stopwatch watch;
      changed_.wait(lock, [this] { return !ready_.empty(); });
      stalled_seconds_ += watch.seconds();
    }
  }
  const Ready ready = std::move(ready_.front());
  ready_.pop_front();
  wanted_ = ready.error ? std::nullopt : std::optional(after(*wanted_));
  lock.unlock();
  changed_.notify_all();
  if (ready.error) std::rethrow_exception(ready.error);
  return ready.batch;
}

void ReadAhead::restart(Place place) {
  wanted_ = next_ = place;
  last_step_ = std::max(last_step_, place.step);
  ready_.clear();
  ++restarts_;  // what is being read now is thrown away
}

ReadAhead::Ready ReadAhead::read(Place place) {
  try {
    return {loader_.load(place.step, order_[place.index]), nullptr};
  } catch (...) {
    return {{}, std::current_exception()};
  }
}

void ReadAhead::work(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  const auto has_work = [this] { return wanted_ && ready_.size() < ahead && next_.step <= last_step_; };
  while (changed_.wait(lock, stop, has_work) && !stop.stop_requested()) {
    const Place place = std::exchange(next_, after(next_));
    const std::int64_t restarts = restarts_;
    lock.unlock();
    Ready ready = read(place);
    lock.lock();
    if (restarts != restarts_) continue;
    ready_.push_back(std::move(ready));
    changed_.notify_all();
  }
}

}  // namespace llmtrain
