// SPDX-License-Identifier: Apache-2.0
/// A non-blocking all-reduce and the memory that it needs until it is done.
#include "llmtrain/base/mpi_maximum.hpp"

#include <algorithm>
#include <exception>
#include <vector>

#include "llmtrain/base/error.hpp"
#include "llmtrain/base/mpi_native.hpp"

namespace llmtrain {

struct MpiMaximum::Impl {
  MpiComm comm;
  std::vector<std::int64_t> mine, all;
  MPI_Request request = MPI_REQUEST_NULL;
};

MpiMaximum::MpiMaximum(const MpiComm& comm, int count) : impl_(std::make_unique<Impl>()) {
  impl_->comm = comm.duplicate();
  impl_->mine.resize(static_cast<std::size_t>(count));
  impl_->all.resize(static_cast<std::size_t>(count));
}

MpiMaximum::~MpiMaximum() {
  if (impl_->request == MPI_REQUEST_NULL) return;
  if (std::uncaught_exceptions() > 0) {
    static_cast<void>(impl_.release());  // the others may never post: the job is about to be aborted
  } else {
    wait_for(impl_->request);
  }
}

void MpiMaximum::post(std::span<const std::int64_t> mine) {
  LLMTRAIN_CHECK(impl_->request == MPI_REQUEST_NULL && mine.size() == impl_->mine.size());
  std::copy(mine.begin(), mine.end(), impl_->mine.begin());
  check_mpi(MPI_Iallreduce(impl_->mine.data(), impl_->all.data(), static_cast<int>(mine.size()), MPI_INT64_T, MPI_MAX,
                           impl_->comm.impl().comm, &impl_->request),
            "MPI_Iallreduce");
}

std::span<const std::int64_t> MpiMaximum::read() {
  LLMTRAIN_CHECK(impl_->request != MPI_REQUEST_NULL);
  wait_for(impl_->request);
  return impl_->all;
}

}  // namespace llmtrain
