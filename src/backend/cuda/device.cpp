// SPDX-License-Identifier: Apache-2.0
/// Choice of the GPU, streams, events, memory and copies.
#include "device.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <thread>

#include "communicator.hpp"
#include "llmtrain/base/beacon.hpp"
#include "llmtrain/base/clock.hpp"
#include "llmtrain/base/host.hpp"
#include "llmtrain/base/text.hpp"

namespace llmtrain {

namespace {

constexpr std::size_t mark_count = 4096;  // events in the ring: far more than can be pending
constexpr std::int64_t staging_bytes = std::int64_t{1} << 20;
constexpr std::int64_t landing_bytes = std::int64_t{64} << 10;

int gpu_count() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
}

int choose_gpu(const CudaOptions& options) {
  const std::string why = why_no_gpu_here();
  require(why.empty(), ExitCode::configuration, "run.device cuda: {}; use run.device cpu", why);
  const int count = gpu_count();
  if (options.share) return options.local_rank % count;
  require(options.local_rank < count, ExitCode::configuration,
          "run.device cuda: {} ranks on this node, but only {} GPU{} visible; start one rank a GPU, or set "
          "run.share_gpu true (for tests)",
          options.local_ranks, count, count == 1 ? " is" : "s are");
  return options.local_rank;
}

/// NCCL refuses two ranks on one GPU unless it takes them for ranks of different hosts.
void pose_as_own_host(int local_rank) {
  const std::string host = fmt::format("llmtrain-shared-gpu-{}", local_rank);
  setenv("NCCL_HOSTID", host.c_str(), 1);
}

}  // namespace

std::string why_no_gpu_here() {
  // Before CUDA starts: with fewer hardware queues than streams, collectives that wait for peers would hold up each other.
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status != cudaSuccess) return fmt::format("no GPU can be used: {}", cudaGetErrorString(status));
  return count == 0 ? "no GPU is visible" : "";
}

CudaDevice::CudaDevice(const CudaOptions& options) : number_(choose_gpu(options)), shared_(options.share) {
  if (shared_) pose_as_own_host(options.local_rank);
  check_cuda(cudaSetDevice(number_), "cudaSetDevice");
  check_cuda(cudaGetDeviceProperties(&properties_, number_), "cudaGetDeviceProperties");
  kernels_ = std::make_unique<CudaKernels>(streams_, options.deterministic);
  if (is_switched_on("LLMTRAIN_PROFILE", false)) {
    profile_ = std::make_unique<OperationProfile>(streams_);
    kernels_->set_observer(profile_.get());
  }
  if (const char* path = std::getenv("LLMTRAIN_CHECK_WAITS")) wait_check_ = std::make_unique<WaitCheck>(path);
  ranges_.tell(wait_check_.get());
  Timers::set_observer(&ranges_);
  marks_.resize(mark_count);
  for (Mark& mark : marks_) {
    check_cuda(cudaEventCreateWithFlags(&mark.event, cudaEventDisableTiming), "cudaEventCreate");
  }
  for (Staging& slot : staging_) {
    check_cuda(cudaHostAlloc(&slot.data, staging_bytes, cudaHostAllocDefault), "cudaHostAlloc");
    check_cuda(cudaEventCreateWithFlags(&slot.copied, cudaEventDisableTiming), "cudaEventCreate");
  }
  void* landing = nullptr;
  check_cuda(cudaHostAlloc(&landing, landing_bytes, cudaHostAllocDefault), "cudaHostAlloc");
  landing_ = static_cast<char*>(landing);
}

CudaDevice::~CudaDevice() {
  Timers::set_observer(nullptr);
  for (const Mark& mark : marks_) cudaEventDestroy(mark.event);
  for (const Staging& slot : staging_) {
    cudaEventDestroy(slot.copied);
    cudaFreeHost(slot.data);
  }
  cudaFreeHost(landing_);
}

std::string CudaDevice::describe() const {
  return fmt::format("{} (GPU {}{}, sm_{}{}, {} multiprocessors, {})", properties_.name, number_,
                     shared_ ? ", shared" : "", properties_.major, properties_.minor, properties_.multiProcessorCount,
                     human_bytes(static_cast<std::int64_t>(properties_.totalGlobalMem)));
}

double CudaDevice::peak_flops(DType precision, std::string* formula) const {
  struct Peak {
    const char* name;
    double bf16, fp32, fp64;  // dense, in TFLOP/s; NVIDIA's data sheets
  };
  // Names of parts with lower clocks (PCIe, NVL) do not begin so.
  constexpr Peak peaks[] = {{"NVIDIA H200", 989.4, 66.9, 66.9},
                            {"NVIDIA H100 80GB HBM3", 989.4, 66.9, 66.9},
                            {"NVIDIA A100", 312, 19.5, 19.5}};
  const std::string name = properties_.name;
  const bool slower = name.find("NVL") != std::string::npos;
  double peak = 0;
  for (const Peak& p : peaks) {
    if (!name.starts_with(p.name) || slower) continue;
    peak = 1e12 * (precision == DType::bf16 ? p.bf16 : precision == DType::fp32 ? p.fp32 : p.fp64);
  }
  if (formula != nullptr) {
    *formula = peak > 0 ? fmt::format("{:.1f} TFLOP/s, dense {} of the data sheet for {}", peak / 1e12,
                                      name_of(precision), name)
                        : fmt::format("unknown for {} on {}", name_of(precision), name);
  }
  return peak;
}

int CudaDevice::numa_node() const {
  int node = -1;
  return cudaDeviceGetAttribute(&node, cudaDevAttrHostNumaId, number_) == cudaSuccess ? node : -1;
}

void CudaDevice::do_observe(OpObserver* observer) {
  if (profile_ == nullptr) kernels_->set_observer(observer);
}

Stream CudaDevice::make_stream(const std::string&) { return {this, streams_.add()}; }

Event CudaDevice::do_record(Stream stream) {
  if (wait_check_ != nullptr) wait_check_->beat();
  Mark& mark = marks_[++recorded_ % mark_count];
  // An Event that is as old as the ring must have happened, for its CUDA event is used again.
  if (mark.id != 0) await(mark.event);
  check_cuda(cudaEventRecord(mark.event, streams_[stream]), "cudaEventRecord");
  mark.id = recorded_;
  mark.group.clear();
  return {this, recorded_};
}

Event CudaDevice::mark(Stream stream, const Group& group) {
  const Event event = do_record(stream);
  marks_[event.id % mark_count].group = group.name;
  return event;
}

const CudaDevice::Mark* CudaDevice::pending(Event event) const {
  if (event.device == nullptr) return nullptr;
  const Mark& mark = marks_[event.id % mark_count];
  return mark.id == event.id ? &mark : nullptr;
}

void CudaDevice::follow(Stream stream, Event event) {
  const Mark* const mark = pending(event);
  if (mark != nullptr) check_cuda(cudaStreamWaitEvent(streams_[stream], mark->event, 0), "cudaStreamWaitEvent");
}

void CudaDevice::do_wait(Stream stream, Event event) {
  const Mark* const mark = pending(event);
  if (mark == nullptr || mark->group.empty()) return follow(stream, event);
  wait_times_.wait(streams_[stream], mark->event, mark->group);
}

bool CudaDevice::gets_on() {
  const std::uint64_t before = happened_;
  // Those that have lost their place in the ring have happened.
  happened_ = std::max(happened_, recorded_ - std::min<std::uint64_t>(recorded_, mark_count));
  while (happened_ < recorded_ && cudaEventQuery(marks_[(happened_ + 1) % mark_count].event) == cudaSuccess) {
    ++happened_;
    Beacon::beat();
  }
  return happened_ != before;
}

std::string CudaDevice::unfinished() const {
  for (std::uint64_t id = happened_ + 1; id <= recorded_; ++id) {
    const Mark& mark = marks_[id % mark_count];
    if (mark.group.empty() || cudaEventQuery(mark.event) == cudaSuccess) continue;
    return fmt::format("the GPU, where a batch of group '{}' has not ended", mark.group);
  }
  return "the GPU";
}

void CudaDevice::await(cudaEvent_t event) {
  await([event] { return cudaEventQuery(event); });
}

template <class Query>
void CudaDevice::await(const Query& query) {
  constexpr double seconds_to_a_name = 1;
  std::optional<Beacon::Wait> wait;
  for (Stopwatch quiet;;) {
    const cudaError_t status = query();
    if (status == cudaSuccess) return;
    if (status != cudaErrorNotReady) check_cuda(status, "work issued earlier");
    for (NcclCommunicator* communicator : communicators_) communicator->check();
    if (wait_check_ != nullptr) wait_check_->beat();
    if (gets_on()) {
      quiet.restart();
      wait.reset();
    } else if (!wait && quiet.seconds() > seconds_to_a_name) {
      wait.emplace(unfinished());
    }
    if (shared_) {
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    } else {
      std::this_thread::yield();
    }
  }
}

void CudaDevice::do_synchronize(Stream stream) {
  await([this, stream] { return cudaStreamQuery(streams_[stream]); });
  for (const Download& d : downloads_) {
    if (d.stream == stream.id) std::memcpy(d.destination, landing_ + d.begin, static_cast<std::size_t>(d.bytes));
  }
  std::erase_if(downloads_, [&](const Download& d) { return d.stream == stream.id; });
  if (profile_ != nullptr) profile_->end_step(stream);
}

void* CudaDevice::allocate(std::int64_t bytes, MemorySpace space) {
  LLMTRAIN_CHECK(bytes >= 0);
  if (wait_check_ != nullptr) wait_check_->allocated();
  const bool pinned = space == MemorySpace::pinned_host;
  const auto least = static_cast<std::size_t>(std::max<std::int64_t>(bytes, 256));
  const std::size_t size = pinned ? least : exportable_bytes(least);
  void* pointer = nullptr;
  const cudaError_t status = pinned ? cudaHostAlloc(&pointer, size, cudaHostAllocDefault) : cudaMalloc(&pointer, size);
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();  // this error is answered here
    return nullptr;
  }
  check_cuda(status, pinned ? "cudaHostAlloc" : "cudaMalloc");
  if (pinned) {
    std::memset(pointer, 0, size);
  } else {
    check_cuda(cudaMemset(pointer, 0, size), "cudaMemset");
    check_cuda(cudaDeviceSynchronize(), "cudaMemset");  // our streams do not wait for the default one
    allocations_.push_back({static_cast<char*>(pointer), static_cast<std::int64_t>(size), ++allocated_});
  }
  return pointer;
}

void CudaDevice::release(void* pointer, MemorySpace space) {
  if (space == MemorySpace::pinned_host) {
    cudaFreeHost(pointer);
  } else {
    std::erase_if(allocations_, [&](const Allocation& a) { return a.base == pointer; });
    cudaFree(pointer);
  }
}

CudaDevice::Allocation CudaDevice::allocation_of(const void* pointer) const {
  const auto holds = [&](const Allocation& a) { return pointer >= a.base && pointer < a.base + a.bytes; };
  const auto found = std::ranges::find_if(allocations_, holds);
  LLMTRAIN_CHECK(found != allocations_.end());
  return *found;
}

void CudaDevice::do_upload(Stream stream, Tensor destination, const void* source) {
  for (std::int64_t begin = 0; begin < destination.bytes(); begin += staging_bytes) {
    const auto count = static_cast<std::size_t>(std::min(staging_bytes, destination.bytes() - begin));
    Staging& slot = staging_[next_staging_++ % staging_.size()];
    await(slot.copied);  // its last use
    Beacon::beat();
    std::memcpy(slot.data, static_cast<const char*>(source) + begin, count);
    check_cuda(cudaMemcpyAsync(static_cast<char*>(destination.data) + begin, slot.data, count, cudaMemcpyHostToDevice,
                               streams_[stream]),
               "upload");
    check_cuda(cudaEventRecord(slot.copied, streams_[stream]), "cudaEventRecord");
  }
}

void CudaDevice::do_download(Stream stream, void* destination, Tensor source) {
  if (source.bytes() == 0) return;
  const std::int64_t begin = downloads_.empty() ? 0 : downloads_.back().begin + downloads_.back().bytes;
  if (begin + source.bytes() <= landing_bytes) {
    downloads_.push_back({stream.id, destination, begin, source.bytes()});
    destination = landing_ + begin;
  }
  check_cuda(cudaMemcpyAsync(destination, source.data, static_cast<std::size_t>(source.bytes()), cudaMemcpyDeviceToHost,
                             streams_[stream]),
             "download");
}

std::unique_ptr<Communicator> CudaDevice::make_communicator(const Group& group, Tensor workspace) {
  return std::make_unique<NcclCommunicator>(*this, group, workspace);
}

}  // namespace llmtrain
