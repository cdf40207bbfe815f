// SPDX-License-Identifier: Apache-2.0
/// The lock of a folder that one run writes: a file with the holder's names and a heartbeat. flock(2) would not do: many
/// network file systems have none, or one that outlives a crash.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

namespace llmtrain {

/// Rhythm of a lock; other than these only in tests.
struct LockTimes {
  std::chrono::milliseconds beat{2000};    ///< between two heartbeats
  std::chrono::milliseconds stale{60000};  ///< without a heartbeat for so long, a holder is taken for dead
  std::chrono::milliseconds poll{50};      ///< between two looks at another's lock
};

/// Who holds a lock, as the file says.
struct LockHolder {
  std::string host;
  std::string boot;     ///< of the machine: process numbers mean something within one boot
  std::string space;    ///< of process numbers (containers of one machine have each their own)
  std::string process;  ///< its number
  std::string start;    ///< when it started: numbers are used again
  std::string job;      ///< of the scheduler; "-" without one
  std::string token;    ///< by chance, of this lock alone

  static LockHolder self();
};

class RunLock {
 public:
  using Say = std::function<void(const std::string& line)>;

  /// Takes the lock of `folder`. One that another run has left is taken over: at once if its process ran on this machine
  /// and is gone, or if it belonged to the same scheduler job; else after `stale` without a heartbeat. `say` is told of a
  /// wait.
  /// Throws Error(cannot_create) naming the holder as soon as its heart beats, and where the file cannot be written.
  RunLock(const std::string& folder, const Say& say, LockTimes times = {}, LockHolder self = LockHolder::self());
  ~RunLock();  ///< gives it back
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;

  const std::string& folder() const;
  const std::string& note() const;  ///< one line if it was taken over from somebody, else empty
  bool is_lost() const;             ///< another run has taken it over meanwhile

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace llmtrain
