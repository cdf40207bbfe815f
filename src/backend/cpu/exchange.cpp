// SPDX-License-Identifier: Apache-2.0
/// Posting, testing and identifying messages.
#include "exchange.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "llmtrain/base/mpi_native.hpp"

namespace llmtrain {

namespace {

// MPI promises tags up to 32767 only: kind * 4096 + sequence modulo 4096.
constexpr std::uint32_t sequence_span = 4096;
constexpr Communicator::OpKind kinds[] = {Communicator::OpKind::all_reduce, Communicator::OpKind::reduce_scatter,
                                          Communicator::OpKind::all_gather, Communicator::OpKind::broadcast,
                                          Communicator::OpKind::shift,      Communicator::OpKind::send};

}  // namespace

Exchange::Exchange(const Group& group, std::int64_t max_message)
    : group_name_(group.name), rank_(group.rank), max_message_(max_message) {
  LLMTRAIN_CHECK(max_message >= 1 && max_message <= std::int64_t{1} << 30);
  if (group.size() == 1) return;
  comm_ = group.comm.duplicate();
  LLMTRAIN_CHECK(comm_.size() == group.size() && comm_.rank() == group.rank);
  check_mpi(MPI_Comm_set_errhandler(comm_.impl().comm, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  sent_.assign(static_cast<std::size_t>(group.size()), 0);
  received_.assign(static_cast<std::size_t>(group.size()), 0);
}

// Messages are pending here only after an error: the job is about to end, nothing is waited for.
Exchange::~Exchange() {
  for (MPI_Request& request : requests_) {
    if (request != MPI_REQUEST_NULL) MPI_Request_free(&request);
  }
}

int Exchange::tag_of(Communicator::OpKind kind, std::uint32_t sequence) {
  if (kind == Communicator::OpKind::receive) kind = Communicator::OpKind::send;
  return static_cast<int>(static_cast<std::uint32_t>(kind) * sequence_span + sequence % sequence_span);
}

void Exchange::send(const void* data, std::int64_t bytes, int peer, Communicator::OpKind kind) {
  for (std::int64_t begin = 0; begin < bytes; begin += max_message_) {
    const auto count = static_cast<int>(std::min(max_message_, bytes - begin));
    const int tag = tag_of(kind, sent_[static_cast<std::size_t>(peer)]++);
    MPI_Request request = MPI_REQUEST_NULL;
    check_mpi(
        MPI_Isend(static_cast<const char*>(data) + begin, count, MPI_BYTE, peer, tag, comm_.impl().comm, &request),
        "MPI_Isend");
    requests_.push_back(request);
    messages_.push_back({peer, tag, -1});
    ++pending_;
  }
}

void Exchange::receive(void* data, std::int64_t bytes, int peer, Communicator::OpKind kind) {
  for (std::int64_t begin = 0; begin < bytes; begin += max_message_) {
    const auto count = static_cast<int>(std::min(max_message_, bytes - begin));
    const int tag = tag_of(kind, received_[static_cast<std::size_t>(peer)]++);
    MPI_Request request = MPI_REQUEST_NULL;
    check_mpi(MPI_Irecv(static_cast<char*>(data) + begin, count, MPI_BYTE, peer, tag, comm_.impl().comm, &request),
              "MPI_Irecv");
    requests_.push_back(request);
    messages_.push_back({peer, tag, count});
    ++pending_;
  }
}

bool Exchange::test() {
  if (requests_.empty()) return false;
  done_.resize(requests_.size());
  statuses_.resize(requests_.size());
  int count = 0;
  const int result =
      MPI_Testsome(static_cast<int>(requests_.size()), requests_.data(), &count, done_.data(), statuses_.data());
  if (result != MPI_ERR_IN_STATUS) check_mpi(result, "MPI_Testsome");
  for (int i = 0; i < count; ++i) {
    const MPI_Status& status = statuses_[static_cast<std::size_t>(i)];
    const Message& message = messages_[static_cast<std::size_t>(done_[static_cast<std::size_t>(i)])];
    if (result == MPI_ERR_IN_STATUS && status.MPI_ERROR != MPI_SUCCESS) {
      int error_class = 0;
      MPI_Error_class(status.MPI_ERROR, &error_class);
      if (error_class == MPI_ERR_TRUNCATE) fail_mismatch(message, "more bytes");
      check_mpi(status.MPI_ERROR, message.bytes < 0 ? "MPI_Isend" : "MPI_Irecv");
    }
    if (message.bytes < 0) continue;
    int received = 0;
    check_mpi(MPI_Get_count(&status, MPI_BYTE, &received), "MPI_Get_count");
    if (received != message.bytes) fail_mismatch(message, fmt::format("{} bytes", received));
  }
  pending_ -= static_cast<std::size_t>(std::max(count, 0));
  if (pending_ == 0) {
    requests_.clear();
    messages_.clear();
  }
  return count > 0;
}

void Exchange::check_peers() const {
  for (std::size_t i = 0; i < requests_.size(); ++i) {
    const Message& message = messages_[i];
    if (message.bytes < 0 || requests_[i] == MPI_REQUEST_NULL) continue;
    for (const Communicator::OpKind kind : kinds) {
      const int tag = tag_of(kind, static_cast<std::uint32_t>(message.tag) % sequence_span);
      if (tag == message.tag) continue;
      int found = 0;
      check_mpi(MPI_Iprobe(message.peer, tag, comm_.impl().comm, &found, MPI_STATUS_IGNORE), "MPI_Iprobe");
      if (found) fail_mismatch(message, fmt::format("a message of {}", name_of(kind)));
    }
  }
}

void Exchange::fail_mismatch(const Message& expected, const std::string& what) const {
  const auto kind = static_cast<Communicator::OpKind>(static_cast<std::uint32_t>(expected.tag) / sequence_span);
  fail(ExitCode::internal,
       "group '{}': rank {} expected {} bytes of {} from rank {} but {} arrived; the ranks do not issue the same "
       "collectives, please report this with the deck and the command",
       group_name_, rank_, expected.bytes, name_of(kind), expected.peer, what);
}

}  // namespace llmtrain
