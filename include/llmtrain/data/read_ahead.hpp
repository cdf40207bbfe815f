// SPDX-License-Identifier: Apache-2.0
/// Micro-batches read before they are asked for, so that a step does not wait for files.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <mutex>
#include <optional>
#include <stop_token>
#include <thread>
#include <vector>

#include "llmtrain/base/timer.hpp"
#include "llmtrain/data/loader.hpp"

namespace llmtrain {

/// A loader with a thread of its own, which keeps up to two micro-batches ready. It only guesses what comes next: what is
/// asked for is always what Loader::load gives, and a wrong guess costs a wait.
class ReadAhead {
 public:
  /// The guess: the micro-batches `order` of one step after another, none beyond `last_step`. Until the end of this
  /// object nobody else uses `loader`. Waits are the range "stall" of `timers`.
  ReadAhead(Loader& loader, std::vector<std::int64_t> order, std::int64_t last_step, Timers& timers);

  /// Begins to read `step`, which is asked for next.
  void prepare(std::int64_t step);

  /// The views stay valid until the next call. Throws what Loader::load throws for this micro-batch.
  MicroBatch load(std::int64_t step, std::int64_t micro);

  /// Time that load() waited, in all. Exactly zero where everything was ready.
  double stalled_seconds() const { return stalled_seconds_; }

 private:
  static constexpr std::size_t ahead = Loader::buffers - 1;  // one more is in use

  struct Place {
    std::int64_t step = 0;
    std::size_t index = 0;  // in order_
    bool operator==(const Place&) const = default;
  };
  struct Ready {
    MicroBatch batch;
    std::exception_ptr error;
  };
  Place after(Place place) const;
  Place place_of(std::int64_t step, std::int64_t micro) const;
  void restart(Place place);
  Ready read(Place place);
  void work(const std::stop_token& stop);

  Loader& loader_;
  const std::vector<std::int64_t> order_;
  Timers& timers_;
  double stalled_seconds_ = 0;

  std::mutex mutex_;
  std::condition_variable_any changed_;
  // Under the mutex:
  std::optional<Place> wanted_;  // the next one to hand out; none: nothing is read
  Place next_;                   // the next one to read
  std::int64_t last_step_;
  std::deque<Ready> ready_;
  std::int64_t restarts_ = 0;

  std::jthread thread_;  // the last member: it uses the others
};

}  // namespace llmtrain
