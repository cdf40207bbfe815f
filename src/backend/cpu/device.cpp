// SPDX-License-Identifier: Apache-2.0
/// Events, memory and progress of the CPU back end.
#include "device.hpp"

#include <omp.h>
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include "communicator.hpp"
#include "cpu/gemm.hpp"
#include "llmtrain/base/backoff.hpp"
#include "llmtrain/base/beacon.hpp"
#include "llmtrain/base/clock.hpp"
#include "processor.hpp"

namespace llmtrain {

namespace {

// An event id is (slot + 1) << 40 | sequence for a batch, the mark | number for a record; 2^40 of either outlast any run.
constexpr int slot_shift = 40;
constexpr std::uint64_t recorded = std::uint64_t{1} << 63;

/// Segments of at least one such page ask for them: matrix products walk down columns, a small page for every row.
constexpr std::int64_t huge_page = std::int64_t{2} << 20;

/// Bytes the system can give without swapping; a large number where it does not say.
std::int64_t available_memory() {
  std::ifstream file("/proc/meminfo");
  std::string key, unit;
  for (std::int64_t value = 0; file >> key >> value; std::getline(file, unit)) {
    if (key == "MemAvailable:") return value * 1024;
  }
  return INT64_MAX;
}

/// memset or memcpy by all threads, each on one contiguous part.
template <class PartFunction>
void in_parallel(std::int64_t bytes, PartFunction part) {
  constexpr std::int64_t page = 4096;
#pragma omp parallel if (bytes >= (std::int64_t{1} << 20))
  {
    const std::int64_t share = ((bytes + omp_get_num_threads() - 1) / omp_get_num_threads() + page - 1) / page * page;
    const std::int64_t begin = std::min(bytes, share * omp_get_thread_num());
    const std::int64_t end = std::min(bytes, begin + share);
    if (begin < end) part(begin, end - begin);
  }
}

}  // namespace

void CpuDevice::Boundary::on_operation(const OpNote& note) {
  Beacon::beat();
  device_.progress();
  if (device_.observer() != nullptr) device_.observer()->on_operation(note);
}

CpuDevice::CpuDevice(int threads, KernelsFactory make_kernels) : threads_(threads), make_kernels_(make_kernels) {
  LLMTRAIN_CHECK(threads >= 1);
  omp_set_num_threads(threads);
}

CpuDevice::~CpuDevice() = default;

std::string CpuDevice::describe() const { return describe_processor(threads_); }

double CpuDevice::peak_flops(DType precision, std::string* formula) const {
  return processor_peak_flops(precision, threads_, formula);
}

std::string CpuDevice::caution(DType precision) const {
  if (precision != DType::bf16 || has_bf16_products()) return {};
  return "precision.compute bf16: this processor has no bf16 products (AMX, or AVX-512 bf16 faster than fp32), so "
         "matrices are widened and multiplied in fp32; precision.compute fp32 is as fast";
}

Kernels& CpuDevice::kernels() {
  if (kernels_ == nullptr) {
    kernels_ = make_kernels_();
    kernels_->set_observer(&boundary_);
  }
  return *kernels_;
}

Stream CpuDevice::make_stream(const std::string&) { return {this, streams_++}; }

Event CpuDevice::do_record(Stream) {
  progress();
  return {this, ++records_ | recorded};  // whatever was issued on a stream has been done at once
}

void CpuDevice::do_wait(Stream, Event event) {
  if (has_happened(event)) return deliver(event);
  const Stopwatch watch;
  const std::string& group = communicator_of(event)->group().name;
  {
    const Beacon::Wait wait(fmt::format("group '{}'", group));
    complete(event);
  }
  exposed_[group] += watch.seconds();
}

void CpuDevice::do_synchronize(Stream) { progress(); }

// Memory is zeroed by all threads, each its part: pages land on the NUMA node of the thread that will mostly use them, and
// a machine that is too small shows itself here and not in the middle of a step.
void* CpuDevice::allocate(std::int64_t bytes, MemorySpace) {
  LLMTRAIN_CHECK(bytes >= 0);
  if (bytes > available_memory()) return nullptr;
  void* pointer = nullptr;
  const bool large = bytes >= huge_page;
  const std::int64_t alignment = large ? huge_page : 256;
  const auto size =
      static_cast<std::size_t>((std::max<std::int64_t>(bytes, 1) + alignment - 1) / alignment * alignment);
  if (posix_memalign(&pointer, static_cast<std::size_t>(alignment), size) != 0) return nullptr;
#if defined(__linux__)
  if (large) madvise(pointer, size, MADV_HUGEPAGE);  // a wish: where it is not granted, pages stay small
#endif
  in_parallel(bytes, [&](std::int64_t begin, std::int64_t count) {
    std::memset(static_cast<char*>(pointer) + begin, 0, static_cast<std::size_t>(count));
  });
  return pointer;
}

void CpuDevice::release(void* pointer, MemorySpace) { std::free(pointer); }

void CpuDevice::do_upload(Stream, Tensor destination, const void* source) {
  in_parallel(destination.bytes(), [&](std::int64_t begin, std::int64_t count) {
    std::memcpy(static_cast<char*>(destination.data) + begin, static_cast<const char*>(source) + begin,
                static_cast<std::size_t>(count));
  });
}

void CpuDevice::do_download(Stream, void* destination, Tensor source) {
  in_parallel(source.bytes(), [&](std::int64_t begin, std::int64_t count) {
    std::memcpy(static_cast<char*>(destination) + begin, static_cast<const char*>(source.data) + begin,
                static_cast<std::size_t>(count));
  });
}

std::unique_ptr<Communicator> CpuDevice::make_communicator(const Group& group, Tensor workspace) {
  return std::make_unique<CpuCommunicator>(*this, group, workspace, CpuCommunicatorOptions{});
}

bool CpuDevice::progress() {
  bool moved = false;
  for (CpuCommunicator* communicator : communicators_) {
    if (communicator != nullptr) moved |= communicator->advance();
  }
  return moved;
}

int CpuDevice::attach(CpuCommunicator* communicator) {
  communicators_.push_back(communicator);
  return static_cast<int>(communicators_.size()) - 1;
}

void CpuDevice::detach(int slot) { communicators_[static_cast<std::size_t>(slot)] = nullptr; }

Event CpuDevice::event_of(int slot, std::uint64_t sequence) {
  return {this, (static_cast<std::uint64_t>(slot) + 1) << slot_shift | sequence};
}

CpuCommunicator* CpuDevice::communicator_of(Event event) const {
  if (event.id == 0 || (event.id & recorded) != 0) return nullptr;
  const std::uint64_t slot = (event.id >> slot_shift) - 1;
  LLMTRAIN_CHECK(event.device == this && slot < communicators_.size());
  return communicators_[slot];
}

namespace {
std::uint64_t sequence_of(Event event) { return event.id & ((std::uint64_t{1} << slot_shift) - 1); }
}  // namespace

bool CpuDevice::has_happened(Event event) const {
  const CpuCommunicator* communicator = communicator_of(event);
  return communicator == nullptr || communicator->has_completed(sequence_of(event));
}

void CpuDevice::deliver(Event event) {
  CpuCommunicator* communicator = communicator_of(event);
  if (communicator != nullptr) communicator->deliver(sequence_of(event));
}

void CpuDevice::complete(Event event) {
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::seconds patience(1);
  Clock::time_point look = Clock::now() + patience;
  Backoff backoff;
  while (!has_happened(event)) {
    if (progress()) {
      Beacon::beat();
      look = Clock::now() + patience;
      backoff.reset();
      continue;
    }
    backoff.pause();
    if (Clock::now() < look) continue;
    for (CpuCommunicator* communicator : communicators_) {
      if (communicator != nullptr) communicator->check_peers();
    }
    look = Clock::now() + patience;
  }
  deliver(event);
}

}  // namespace llmtrain
