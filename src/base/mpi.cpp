// SPDX-License-Identifier: Apache-2.0
/// RAII over MPI handles; message sizes beyond INT_MAX are cut into pieces here, once.
#include "llmtrain/base/mpi.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdlib>

#include "llmtrain/base/backoff.hpp"
#include "llmtrain/base/beacon.hpp"
#include "llmtrain/base/error.hpp"
#include "llmtrain/base/host.hpp"
#include "llmtrain/base/mpi_native.hpp"
#include "llmtrain/base/start_limit.hpp"

namespace llmtrain {

namespace {

constexpr std::int64_t max_message = std::int64_t{1} << 30;

MPI_Op native(MpiOp op) {
  switch (op) {
    case MpiOp::sum: return MPI_SUM;
    case MpiOp::min: return MPI_MIN;
    case MpiOp::max: return MPI_MAX;
  }
  return MPI_OP_NULL;
}

}  // namespace

void check_mpi(int status, const char* call) {
  if (status == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  MPI_Error_string(status, text, &length);
  fail(ExitCode::internal, "{} failed: {}", call, std::string_view(text, static_cast<std::size_t>(length)));
}

namespace {

/// A launcher's count of processes that says more than the one that this MPI sees; empty if there is none.
/// (SLURM_NTASKS is not asked: it is set in a batch script too, where one process alone is right.)
std::string launched_by_another() {
  int size = 0;
  check_mpi(MPI_Comm_size(MPI_COMM_WORLD, &size), "MPI_Comm_size");
  if (size > 1) return {};
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MPI_LOCALNRANKS", "SLURM_STEP_NUM_TASKS"}) {
    const char* count = std::getenv(name);
    if (count != nullptr && std::atoi(count) > 1) return fmt::format("{}={}", name, count);
  }
  return {};
}

/// True if this node runs more ranks than it has cores that they may run on. Collective.
bool ranks_share_cores() {
  MPI_Comm node = MPI_COMM_NULL;
  check_mpi(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node), "MPI_Comm_split_type");
  int ranks = 0;
  check_mpi(MPI_Comm_size(node, &ranks), "MPI_Comm_size");
  std::string cores = core_mask();
  check_mpi(MPI_Allreduce(MPI_IN_PLACE, cores.data(), static_cast<int>(cores.size()), MPI_BYTE, MPI_BOR, node),
            "MPI_Allreduce");
  check_mpi(MPI_Comm_free(&node), "MPI_Comm_free");
  return ranks > std::count(cores.begin(), cores.end(), '1');
}

}  // namespace

void wait_for(MPI_Request& request) {
  const Beacon::Wait wait("other ranks");
  Backoff backoff;
  for (int done = 0;;) {
    check_mpi(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "MPI_Test");
    if (done != 0) return;
    backoff.pause();
  }
}

MpiSession::MpiSession(int& argc, char**& argv) {
  int provided = 0;
  {
    const StartLimit limit;
    check_mpi(MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided), "MPI_Init_thread");
  }
  require(provided >= MPI_THREAD_FUNNELED, ExitCode::configuration,
          "this MPI library does not offer MPI_THREAD_FUNNELED; build Open MPI with thread support");
  const std::string other = launched_by_another();
  if (other.empty()) {
    if (ranks_share_cores()) Backoff::share_cores();
    return;
  }
  MPI_Finalize();
  fail(ExitCode::configuration,
       "a launcher started several processes ({}), but the MPI library built into llmtrain ({}) sees this one alone: "
       "start it with the mpirun of that library",
       other, mpi_library_version());
}

MpiSession::~MpiSession() { MPI_Finalize(); }

MpiComm::Impl::~Impl() {
  int finalized = 0;
  MPI_Finalized(&finalized);
  if (!finalized && comm != MPI_COMM_NULL) MPI_Comm_free(&comm);
}

MpiComm MpiComm::world() {
  MPI_Comm handle = MPI_COMM_NULL;
  check_mpi(MPI_Comm_dup(MPI_COMM_WORLD, &handle), "MPI_Comm_dup");
  return MpiComm(std::make_shared<Impl>(handle));
}

const MpiComm::Impl& MpiComm::impl() const {
  LLMTRAIN_CHECK(impl_ != nullptr);
  return *impl_;
}

int MpiComm::rank() const {
  int value = 0;
  check_mpi(MPI_Comm_rank(impl().comm, &value), "MPI_Comm_rank");
  return value;
}

int MpiComm::size() const {
  int value = 0;
  check_mpi(MPI_Comm_size(impl().comm, &value), "MPI_Comm_size");
  return value;
}

MpiComm MpiComm::split(int color, int key) const {
  MPI_Comm handle = MPI_COMM_NULL;
  check_mpi(MPI_Comm_split(impl().comm, color < 0 ? MPI_UNDEFINED : color, key, &handle), "MPI_Comm_split");
  return handle == MPI_COMM_NULL ? MpiComm() : MpiComm(std::make_shared<Impl>(handle));
}

MpiComm MpiComm::split_by_node() const {
  MPI_Comm handle = MPI_COMM_NULL;
  check_mpi(MPI_Comm_split_type(impl().comm, MPI_COMM_TYPE_SHARED, rank(), MPI_INFO_NULL, &handle),
            "MPI_Comm_split_type");
  return MpiComm(std::make_shared<Impl>(handle));
}

MpiComm MpiComm::duplicate() const {
  MPI_Comm handle = MPI_COMM_NULL;
  check_mpi(MPI_Comm_dup(impl().comm, &handle), "MPI_Comm_dup");
  return MpiComm(std::make_shared<Impl>(handle));
}

void MpiComm::barrier() const {
  MPI_Request request = MPI_REQUEST_NULL;
  check_mpi(MPI_Ibarrier(impl().comm, &request), "MPI_Ibarrier");
  wait_for(request);
}

void MpiComm::broadcast(std::span<std::byte> bytes, int root) const {
  const auto total = static_cast<std::int64_t>(bytes.size());
  for (std::int64_t begin = 0; begin < total; begin += max_message) {
    const auto count = static_cast<int>(std::min(max_message, total - begin));
    MPI_Request request = MPI_REQUEST_NULL;
    check_mpi(MPI_Ibcast(bytes.data() + begin, count, MPI_BYTE, root, impl().comm, &request), "MPI_Ibcast");
    wait_for(request);
  }
}

std::string MpiComm::broadcast(const std::string& text, int root) const {
  auto length = static_cast<std::int64_t>(text.size());
  broadcast(std::as_writable_bytes(std::span(&length, 1)), root);
  std::string result = rank() == root ? text : std::string(static_cast<std::size_t>(length), '\0');
  broadcast(std::as_writable_bytes(std::span(result)), root);
  return result;
}

namespace {

void all_reduce_in_place(void* values, std::size_t count, MPI_Datatype type, MpiOp op, MPI_Comm comm) {
  MPI_Request request = MPI_REQUEST_NULL;
  check_mpi(MPI_Iallreduce(MPI_IN_PLACE, values, static_cast<int>(count), type, native(op), comm, &request),
            "MPI_Iallreduce");
  wait_for(request);
}

}  // namespace

void MpiComm::all_reduce(std::span<double> values, MpiOp op) const {
  all_reduce_in_place(values.data(), values.size(), MPI_DOUBLE, op, impl().comm);
}

void MpiComm::all_reduce(std::span<std::int64_t> values, MpiOp op) const {
  all_reduce_in_place(values.data(), values.size(), MPI_INT64_T, op, impl().comm);
}

std::int64_t MpiComm::all_reduce(std::int64_t value, MpiOp op) const {
  all_reduce(std::span(&value, 1), op);
  return value;
}

double MpiComm::all_reduce(double value, MpiOp op) const {
  all_reduce(std::span(&value, 1), op);
  return value;
}

std::vector<std::string> MpiComm::all_gather(const std::string& text) const {
  std::vector<std::string> texts(static_cast<std::size_t>(size()));
  for (int root = 0; root < size(); ++root) texts[static_cast<std::size_t>(root)] = broadcast(text, root);
  return texts;
}

void MpiComm::all_gather(std::span<std::byte> all, std::span<const std::byte> own) const {
  LLMTRAIN_CHECK(all.size() == own.size() * static_cast<std::size_t>(size()));
  MPI_Request request = MPI_REQUEST_NULL;
  const auto count = static_cast<int>(own.size());
  check_mpi(MPI_Iallgather(own.data(), count, MPI_BYTE, all.data(), count, MPI_BYTE, impl().comm, &request),
            "MPI_Iallgather");
  wait_for(request);
}

void MpiComm::abort(int code) const {
  MPI_Abort(impl().comm, code);
  std::_Exit(code);
}

std::string mpi_library_version() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING];
  int length = 0;
  MPI_Get_library_version(text, &length);
  std::string version(text, static_cast<std::size_t>(length));
  return version.substr(0, version.find_first_of(",\n"));
}

}  // namespace llmtrain
