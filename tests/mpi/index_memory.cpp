// SPDX-License-Identifier: Apache-2.0
// ranks: 1 2 4
/// The memory of sample orders: one copy a node, filled by one rank, the same order for all; failures are agreed on.
#include "llmtrain/data/index_memory.hpp"

#include <doctest/doctest.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <string>

#include "llmtrain/base/agree.hpp"
#include "llmtrain/data/blend.hpp"
#include "llmtrain/data/indexed_dataset_writer.hpp"
#include "llmtrain/data/source_dataset.hpp"
#include "support/scratch_folder.hpp"

using namespace llmtrain;

namespace {

/// The part of /proc/self/maps that names the memory at `address`: device and inode.
std::string identity_of(const void* address) {
  std::ifstream maps("/proc/self/maps");
  const auto wanted = reinterpret_cast<std::uintptr_t>(address);
  for (std::string line; std::getline(maps, line);) {
    const auto dash = line.find('-');
    const auto begin = std::stoull(line.substr(0, dash), nullptr, 16),
               end = std::stoull(line.substr(dash + 1), nullptr, 16);
    if (begin <= wanted && wanted < end) return line.substr(line.find(' ', line.find(' ') + 1));
  }
  return "none";
}

}  // namespace

TEST_CASE("one rank of a node fills what all of them read") {
  const MpiComm world = MpiComm::world(), node = world.split_by_node();
  IndexMemory memory;
  std::int64_t filled = 0;
  const auto numbers_from = [&](std::int32_t first) {
    return [&filled, first](std::byte* at) {
      std::iota(reinterpret_cast<std::int32_t*>(at), reinterpret_cast<std::int32_t*>(at) + 5, first);
      ++filled;
    };
  };
  const std::int64_t a = memory.request(20, numbers_from(7)), b = memory.request(20, numbers_from(100));
  CHECK(a % 8 == 0);
  CHECK(b % 8 == 0);
  CHECK(b >= a + 20);
  memory.build(world, node);
  CHECK(filled == (node.rank() == 0 ? 2 : 0));
  for (int i = 0; i < 5; ++i) {
    CHECK(reinterpret_cast<const std::int32_t*>(memory.at(a))[i] == 7 + i);
    CHECK(reinterpret_cast<const std::int32_t*>(memory.at(b))[i] == 100 + i);
  }
  const std::string mine = identity_of(memory.at(0));
  CHECK(mine.find("memfd") != std::string::npos);
  CHECK(node.broadcast(mine, 0) == mine);  // the same memory, not a copy of it
  CHECK(std::filesystem::exists("/proc/self/fd"));
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    CHECK(std::filesystem::read_symlink(entry, gone).string().find("sample order") == std::string::npos);
  }
}

TEST_CASE("ranks that share a node read the order that a rank alone makes") {
  const MpiComm world = MpiComm::world();
  std::unique_ptr<ScratchFolder> folder;
  if (world.rank() == 0) folder = std::make_unique<ScratchFolder>();
  const std::string prefix = world.broadcast(folder ? folder->path() : std::string(), 0) + "/set";
  agree_on_root(world, [&] {
    IndexedDatasetWriter writer(prefix, 1000);
    for (int sequence = 0; sequence < 200; ++sequence) {
      writer.add_sequence(std::vector<std::int32_t>(static_cast<std::size_t>(sequence % 37), sequence));
      writer.end_document();
    }
    writer.finish();
    publish(writer.files());
  });
  const auto source = std::make_shared<const IndexedDataset>(prefix);
  const auto memory = std::make_shared<IndexMemory>();
  const SourceDataset shared(source, 16, SampleIndex(*source, {3, 190}, 16, 1000, 99, memory));
  const BlendIndex blend(std::array{0.3, 0.5, 0.2}, 5000, memory);
  memory->build(world, world.split_by_node());
  const SourceDataset alone(source, {3, 190}, 16, 1000, 99);
  REQUIRE(shared.samples() == alone.samples());
  std::vector<std::int32_t> a(17), b(17);
  bool equal = true;
  for (std::int64_t i = 0; i < alone.samples(); ++i) {
    shared.sample(i, a);
    alone.sample(i, b);
    equal = equal && a == b;
  }
  CHECK(equal);
  const BlendIndex blend_alone(std::array{0.3, 0.5, 0.2}, 5000);
  for (std::int64_t i = 0; i < 5000; ++i) {
    equal = equal && blend[i].set == blend_alone[i].set && blend[i].sample == blend_alone[i].sample;
  }
  CHECK(equal);
  world.barrier();  // others may still read the folder
}

TEST_CASE("a failure of the rank that fills is everybody's, and too much memory is an error, not the end") {
  const MpiComm world = MpiComm::world(), node = world.split_by_node();
  const auto code_of = [&](std::int64_t bytes, IndexMemory::Fill fill) {
    IndexMemory memory;
    memory.request(bytes, std::move(fill));
    try {
      memory.build(world, node);
    } catch (const AgreedError& error) {
      return error.code();
    }
    return ExitCode::done;
  };
  CHECK(code_of(8, [](std::byte*) { fail(ExitCode::io_error, "broken"); }) == ExitCode::io_error);
  CHECK(code_of(std::int64_t{1} << 50, [](std::byte*) {}) == ExitCode::out_of_memory);
  CHECK(code_of(0, [](std::byte*) {}) == ExitCode::done);
}
