// SPDX-License-Identifier: Apache-2.0
/// Exchange: the MPI messages that one communicator has in flight.
#pragma once

#include <mpi.h>

#include <cstdint>
#include <string>
#include <vector>

#include "llmtrain/backend/communicator.hpp"

namespace llmtrain {

/// Non-blocking sends and receives. The k-th message to a peer meets the k-th receive from this rank there; the tag holds
/// the operation's kind and k, so that ranks which disagree about the operation are told apart instead of mixed up.
class Exchange {
 public:
  /// Uses a duplicate of the group's communicator (none in a group of one). Messages longer than `max_message` bytes are
  /// cut. Collective.
  Exchange(const Group& group, std::int64_t max_message);
  ~Exchange();
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  void send(const void* data, std::int64_t bytes, int peer, Communicator::OpKind kind);
  void receive(void* data, std::int64_t bytes, int peer, Communicator::OpKind kind);

  bool idle() const { return requests_.empty(); }
  /// One MPI_Testsome; true if a message completed. A message of another length than expected is an error.
  bool test();
  /// Looks for messages of another operation where a receive is pending; an error if there is one.
  void check_peers() const;

 private:
  struct Message {
    int peer;
    int tag;
    int bytes;  ///< of a receive; -1 for a send
  };
  static int tag_of(Communicator::OpKind kind, std::uint32_t sequence);
  void fail_mismatch(const Message& expected, const std::string& what) const;

  std::string group_name_;
  int rank_;
  MpiComm comm_;
  std::int64_t max_message_;
  std::vector<MPI_Request> requests_;
  std::vector<Message> messages_;    ///< of requests_
  std::size_t pending_ = 0;          ///< of requests_
  std::vector<std::uint32_t> sent_;  ///< messages so far, by peer
  std::vector<std::uint32_t> received_;
  std::vector<int> done_;  ///< of the last test
  std::vector<MPI_Status> statuses_;
};

}  // namespace llmtrain
