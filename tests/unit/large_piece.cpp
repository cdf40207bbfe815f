// SPDX-License-Identifier: Apache-2.0
// label: full
/// One tensor of more bytes than some systems write or read in one call.
#include <sys/mman.h>

#include "damage.hpp"

using namespace llmtrain;
using namespace checkpoint_test;

namespace {

constexpr std::int64_t elements = (std::int64_t{3} << 30) / 4 + 5;
constexpr std::int64_t bytes = elements * 4;

/// Memory that takes room only where it is written to.
class Sparse {
 public:
  Sparse() : data_(::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)) {
    REQUIRE(data_ != MAP_FAILED);
  }
  ~Sparse() { ::munmap(data_, bytes); }
  float* data() const { return static_cast<float*>(data_); }

 private:
  void* data_;
};

}  // namespace

TEST_CASE("a piece of 3 GB is saved, verified and read") {
  const Scratch scratch;
  const Sparse memory;
  const std::int64_t places[] = {0, elements / 3, (std::int64_t{1} << 29) - 1, std::int64_t{1} << 29, elements - 1};
  for (const std::int64_t at : places) memory.data()[at] = static_cast<float>(at);
  const Piece piece{"/model/large", DType::fp32, {elements}, {0}, {elements}, 0, elements, memory.data()};
  const fs::path folder = save_checkpoint(alone, scratch.path(), state_at(1), std::span(&piece, 1), {}).folder;
  CHECK(fs::file_size(folder / "shard-00000.h5") > static_cast<std::uintmax_t>(bytes));
  const Checkpoint checkpoint = open_checkpoint(alone, folder);
  for (const std::int64_t at : places) {
    float value = -1;
    const Piece one{"/model/large", DType::fp32, {elements}, {0}, {elements}, at, at + 1, &value};
    load_checkpoint(alone, checkpoint, std::span(&one, 1));
    CHECK(value == static_cast<float>(at));
  }
  const Sparse whole;
  Piece all = piece;
  all.data = whole.data();
  load_checkpoint(alone, checkpoint, std::span(&all, 1));
  for (const std::int64_t at : places) CHECK(whole.data()[at] == static_cast<float>(at));
  CHECK(whole.data()[elements / 2] == 0);
}
