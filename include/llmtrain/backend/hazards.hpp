// SPDX-License-Identifier: Apache-2.0
/// HazardChecker: proves that accesses to memory from different streams are ordered by events, not by luck, and that nobody
/// touches what he has given back.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "llmtrain/backend/observer.hpp"

namespace llmtrain {

/// Whether running devices are watched (this checker, the in-flight check of the CPU's communicators): true in debug
/// builds; the environment variable LLMTRAIN_CHECK_IN_FLIGHT decides otherwise (0: no, all else: yes).
bool debug_checks();

/// Which memory was lent and given back.
class LeaseBook {
 public:
  void note(const LeaseNote& note);
  /// The name of what was lent there last, if an operation may not touch the tensor; else null.
  const char* given_back(const Tensor& tensor) const;

 private:
  struct Bytes {
    std::uintptr_t begin = 0, end = 0;
    const char* name = nullptr;
  };
  void take(std::uintptr_t begin, std::uintptr_t end);

  std::vector<Bytes> lent_;                   ///< as often as it is
  std::map<std::uintptr_t, Bytes> returned_;  ///< by first byte, without overlap
};

/// Vector clocks (Fidge 1988, Mattern 1988) over streams, where a communicator counts as a stream of its own: an event
/// carries the clock of the stream that recorded it, waiting joins it into the stream that waits. Every byte range knows
/// its last write and the reads since. An access that is not ordered after a conflicting one (write after write, write
/// after read, read after write) is Error(internal), naming both operations and the buffer: a missing wait, a missing
/// ready event, a source changed in flight, memory reused too early. So is an operation on memory after its lease, which
/// collectives alone may touch then.
///
/// It needs no device: on the trace back end it proves the order of a whole step for any rank of any layout. Tensors with
/// gaps between their rows count with the gaps.
class HazardChecker final : public OpObserver {
 public:
  /// Says what stands at an address; for messages.
  using Namer = std::function<std::string(const void*)>;
  explicit HazardChecker(Namer namer = {}) : namer_(std::move(namer)) {}

  void on_operation(const OpNote& note) override;
  void on_batch(const BatchNote& batch) override;
  void on_record(Stream stream, Event event) override;
  void on_wait(Stream stream, Event event) override;
  void on_synchronize(Stream stream) override;
  void on_lease(const LeaseNote& note) override { leases_.note(note); }

 private:
  using Clock = std::vector<std::uint64_t>;  ///< by thread; absent entries are 0
  /// Who touched a range, when.
  struct Access {
    const char* name = nullptr;  ///< of the operation; null for nobody
    int thread = 0;
    std::uint64_t time = 0;  ///< of its thread: the number of the operation there
  };
  struct Range {
    std::uintptr_t end = 0;
    Access writer;
    std::vector<Access> readers;  ///< since the write, the last one of each thread
  };
  using Ranges = std::map<std::uintptr_t, Range>;  ///< by first byte, without overlap

  static void join(Clock& clock, const Clock& other);
  int thread_of(Stream stream);
  int thread_of(const Group* group);
  int new_thread(std::string name);
  /// Starts an operation: advances the clock of its thread, which also sees what the host waited for.
  Access begin(const char* name, int thread);
  void read(const Access& access, const Tensor& tensor);
  void write(const Access& access, const Tensor& tensor);
  Ranges::iterator split(std::uintptr_t at);
  /// The ranges that cover [begin, end) exactly.
  std::pair<Ranges::iterator, Ranges::iterator> cover(std::uintptr_t begin, std::uintptr_t end);
  void require_lease(const Access& access, const Tensor& tensor) const;
  void require_order(const Access& earlier, const char* what, const Access& later, const char* how,
                     std::uintptr_t address) const;
  std::string describe(const Access& access) const;

  Namer namer_;
  std::vector<std::string> names_;  ///< of threads
  std::vector<Clock> clocks_;       ///< of threads
  std::map<int, int> streams_;      ///< threads by stream number
  std::map<const Group*, int> groups_;
  std::map<std::uint64_t, Clock> events_;  ///< by number: what they carry
  Clock host_;                             ///< what the host has waited for
  Ranges ranges_;
  LeaseBook leases_;
};

}  // namespace llmtrain
