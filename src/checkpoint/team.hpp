// SPDX-License-Identifier: Apache-2.0
/// The few collectives that checkpoints need, with a null communicator as a team of one: the tools run without MPI.
#pragma once

#include <algorithm>
#include <functional>
#include <iterator>
#include <string>
#include <vector>

#include "llmtrain/base/agree.hpp"
#include "llmtrain/base/mpi.hpp"
#include "llmtrain/base/text.hpp"

namespace llmtrain::team {

inline int rank(const MpiComm& comm) { return comm ? comm.rank() : 0; }
inline int size(const MpiComm& comm) { return comm ? comm.size() : 1; }

inline void agree(const MpiComm& comm, const std::function<void()>& action) {
  if (comm) {
    llmtrain::agree(comm, action);
  } else {
    action();
  }
}

inline void agree_on_root(const MpiComm& comm, const std::function<void()>& action) {
  if (comm) {
    llmtrain::agree_on_root(comm, action);
  } else {
    action();
  }
}

inline std::string broadcast(const MpiComm& comm, const std::string& text) {
  return comm ? comm.broadcast(text, 0) : text;
}

inline std::vector<std::string> all_gather(const MpiComm& comm, const std::string& text) {
  return comm ? comm.all_gather(text) : std::vector<std::string>{text};
}

/// The lines of every rank's text, by rank.
inline std::vector<std::string> all_lines(const MpiComm& comm, const std::string& text) {
  std::vector<std::string> lines;
  for (const std::string& part : all_gather(comm, text)) std::ranges::move(lines_of(part), std::back_inserter(lines));
  return lines;
}

inline std::int64_t sum(const MpiComm& comm, std::int64_t value) {
  return comm ? comm.all_reduce(value, MpiOp::sum) : value;
}

}  // namespace llmtrain::team
