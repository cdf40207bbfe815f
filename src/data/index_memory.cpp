// SPDX-License-Identifier: Apache-2.0
/// Memory behind a descriptor (memfd), mapped by every rank of a node.
#include "llmtrain/data/index_memory.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <limits>
#include <string>
#include <utility>

#include "llmtrain/base/agree.hpp"
#include "llmtrain/base/error.hpp"

namespace llmtrain {

namespace {

/// What the kernel could give without taking from others; all of 63 bits where it does not say.
std::int64_t available_bytes() {
  const std::string text = read_file("/proc/meminfo");
  const std::size_t at = text.find("MemAvailable:");
  return at == std::string::npos ? std::numeric_limits<std::int64_t>::max() : 1024 * std::stoll(text.substr(at + 13));
}

constexpr char remedy[] = "lower run.steps or data.samples, or choose data.order shuffled, which takes no such memory";

}  // namespace

IndexMemory::~IndexMemory() {
  if (data_ != nullptr) ::munmap(data_, static_cast<std::size_t>(bytes_));
}

std::int64_t IndexMemory::request(std::int64_t bytes, Fill fill) {
  LLMTRAIN_CHECK(data_ == nullptr && bytes >= 0);
  std::int64_t end = 0;
  require(!__builtin_add_overflow(bytes_, bytes, &end) && end <= INT64_MAX - 8, ExitCode::configuration,
          "data: the sample order would take more than 2^63 bytes; {}", remedy);
  parts_.push_back({bytes_, std::move(fill)});
  return std::exchange(bytes_, (end + 7) / 8 * 8);
}

void IndexMemory::build() {
  if (bytes_ == 0) return;
  make();
  fill();
  descriptor_.close();
  parts_.clear();
}

void IndexMemory::build(const MpiComm& world, const MpiComm& node) {
  if (bytes_ == 0) return;
  const bool first = node.rank() == 0;
  agree(world, [&] {
    if (first) make();
  });
  const std::string name = node.broadcast(fmt::format("/proc/{}/fd/{}", ::getpid(), descriptor_.get()), 0);
  agree(world, [&] {
    if (first) {
      fill();
    } else {
      map_that_of(name);
    }
  });
  descriptor_.close();
  parts_.clear();
}

void IndexMemory::make() {
  // Asked before: a lack of memory that shows while it is filled is no error but the end of some process.
  require(bytes_ <= available_bytes(), ExitCode::out_of_memory,
          "the sample order takes {} bytes a node, but {} are available; {}", bytes_, available_bytes(), remedy);
  descriptor_ = FileDescriptor(::memfd_create("llmtrain sample order", MFD_CLOEXEC));
  const bool made = descriptor_ && ::ftruncate(descriptor_.get(), bytes_) == 0;
  require(made, ExitCode::out_of_memory, "no memory for the sample order, {} bytes a node: {}; {}", bytes_,
          errno_text(errno), remedy);
  map(descriptor_.get(), true);
}

void IndexMemory::map(int descriptor, bool writable) {
  const int protection = writable ? PROT_READ | PROT_WRITE : PROT_READ;
  void* data = ::mmap(nullptr, static_cast<std::size_t>(bytes_), protection, MAP_SHARED, descriptor, 0);
  require(data != MAP_FAILED, ExitCode::out_of_memory, "mapping the sample order, {} bytes, failed: {}; {}", bytes_,
          errno_text(errno), remedy);
  data_ = static_cast<std::byte*>(data);
}

void IndexMemory::map_that_of(const std::string& descriptor) {
  const FileDescriptor opened(::open(descriptor.c_str(), O_RDONLY | O_CLOEXEC));
  require(bool(opened), ExitCode::permission,
          "cannot open the sample order of this node's first rank, {}: {}; start the ranks of a node where they see "
          "each other's processes, or choose data.order shuffled",
          descriptor, errno_text(errno));
  map(opened.get(), false);
}

void IndexMemory::fill() {
  for (const Part& part : parts_) part.fill(data_ + part.place);
  ::mprotect(data_, static_cast<std::size_t>(bytes_), PROT_READ);
}

}  // namespace llmtrain
