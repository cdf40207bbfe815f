// SPDX-License-Identifier: Apache-2.0
/// MPI as RAII objects, without mpi.h: the session, communicators, and the few blocking host-side collectives that
/// set-up, error agreement and checkpoints need. Tensor traffic goes through backend/communicator.hpp instead.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace llmtrain {

/// Starts MPI (MPI_THREAD_FUNNELED) and finalizes it; one per process, made first in main.
class MpiSession {
 public:
  MpiSession(int& argc, char**& argv);
  ~MpiSession();
  MpiSession(const MpiSession&) = delete;
  MpiSession& operator=(const MpiSession&) = delete;
};

enum class MpiOp { sum, min, max };

/// A communicator; copies share one handle, the last one frees it. Methods marked "Collective" must be reached by
/// every rank of the communicator.
class MpiComm {
 public:
  MpiComm() = default;  ///< null: no communicator (the trace back end)

  /// A duplicate of MPI_COMM_WORLD. Collective.
  static MpiComm world();

  explicit operator bool() const { return impl_ != nullptr; }
  int rank() const;
  int size() const;

  /// Communicator of the ranks with equal color, ordered by key; null where color < 0. Collective.
  MpiComm split(int color, int key) const;
  /// Communicator of the ranks that share this node's memory. Collective.
  MpiComm split_by_node() const;
  MpiComm duplicate() const;  ///< Collective.

  void barrier() const;                                                ///< Collective.
  void broadcast(std::span<std::byte> bytes, int root) const;          ///< Collective; any size.
  std::string broadcast(const std::string& text, int root) const;      ///< Collective.
  void all_reduce(std::span<double> values, MpiOp op) const;           ///< Collective; in place.
  void all_reduce(std::span<std::int64_t> values, MpiOp op) const;     ///< Collective; in place.
  std::int64_t all_reduce(std::int64_t value, MpiOp op) const;         ///< Collective.
  double all_reduce(double value, MpiOp op) const;                     ///< Collective.
  std::vector<std::string> all_gather(const std::string& text) const;  ///< Text of every rank, by rank. Collective.
  /// `all` = every rank's `own`, of one size below 2 GiB, by rank. Collective.
  void all_gather(std::span<std::byte> all, std::span<const std::byte> own) const;

  /// Ends the whole job with this exit code; for a failure that only this rank knows of.
  [[noreturn]] void abort(int code) const;

  struct Impl;
  const Impl& impl() const;  ///< for the files that include mpi.h (base/mpi_native.hpp)

 private:
  explicit MpiComm(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
  std::shared_ptr<Impl> impl_;
};

/// Version line of the MPI library linked with, e.g. "Open MPI v4.1.4".
std::string mpi_library_version();

}  // namespace llmtrain
