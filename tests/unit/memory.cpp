// SPDX-License-Identifier: Apache-2.0
/// Plans predict what arenas allocate; scratch frames close in stack order and name what is live when they are full.
#include <doctest/doctest.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "llmtrain/base/error.hpp"
#include "llmtrain/memory/arena.hpp"
#include "llmtrain/memory/scratch.hpp"
#include "support/idle_device.hpp"

using namespace llmtrain;

namespace {

/// Counts what is allocated; refuses beyond `limit`.
class CountingDevice final : public test::IdleDevice {
 public:
  explicit CountingDevice(std::int64_t limit) : limit_(limit) {}
  void* allocate(std::int64_t bytes, MemorySpace space) override {
    if (in_use + bytes > limit_) return nullptr;
    in_use += bytes;
    void* pointer = IdleDevice::allocate(bytes, space);
    live[pointer] = {bytes, space};
    return pointer;
  }
  void release(void* pointer, MemorySpace space) override {
    CHECK(live.at(pointer).second == space);
    in_use -= live.at(pointer).first;
    live.erase(pointer);
    IdleDevice::release(pointer, space);
  }

  std::int64_t in_use = 0;
  std::map<void*, std::pair<std::int64_t, MemorySpace>> live;

 private:
  std::int64_t limit_;
};

std::string message_of(const std::function<void()>& action, ExitCode code) {
  try {
    action();
  } catch (const Error& error) {
    CHECK(error.code() == code);
    return error.what();
  }
  return "";
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("an arena allocates what its plan predicts, one allocation a segment") {
  MemoryPlan plan;
  const Slot a = plan.request(Segment::params, "wte", DType::fp32, {10, 7});
  const Slot b = plan.request(Segment::params, "norm", DType::bf16, {129});
  const Slot empty = plan.request(Segment::params, "none", DType::fp32, {0, 5});
  const Slot c = plan.request(Segment::params, "ids", DType::int64, {1, 2, 3, 4});
  const Slot h = plan.request(Segment::host, "tokens", DType::int32, {64});
  CHECK(plan.bytes(Segment::params) == 512 + 512 + 0 + 256);
  CHECK(plan.bytes(Segment::host) == 256);
  CHECK(plan.bytes(Segment::grads) == 0);
  CHECK(plan.total() == 1536);
  CHECK(plan.device_total() == 1280);
  std::int64_t sum = 0;
  for (const MemoryPlan::Row& row : plan.rows()) sum += row.bytes;
  CHECK(sum == plan.total());

  CountingDevice device(1 << 20);
  {
    const Arena arena(device, plan);
    CHECK(device.in_use == plan.total());
    CHECK(device.live.size() == 2);
    CHECK(arena[a].describe() == "fp32 [10, 7]");
    CHECK(arena[c].describe() == "int64 [1, 2, 3, 4]");
    CHECK(arena[empty].numel() == 0);
    CHECK(static_cast<char*>(arena[b].data) - static_cast<char*>(arena[a].data) == 512);
    CHECK(static_cast<char*>(arena[c].data) - static_cast<char*>(arena[b].data) == 512);
    for (const Slot slot : {a, b, c, h}) CHECK(reinterpret_cast<std::uintptr_t>(arena[slot].data) % 256 == 0);
    CHECK_THROWS_AS(arena[Slot{}], Error);
    CHECK_THROWS_AS(arena[Slot{5}], Error);
  }
  CHECK(device.in_use == 0);
}

TEST_CASE("a plan prints its rows and refuses sizes that cannot be counted") {
  MemoryPlan plan;
  plan.request(Segment::grads, "block 0", DType::fp32, {1024, 1024});
  plan.request(Segment::params, "wte", DType::bf16, {3, 100});
  CHECK(contains(plan.table(), "fp32 [1024, 1024]"));
  CHECK(contains(plan.table(), "4.00 MiB"));
  CHECK(plan.table().find("wte") < plan.table().find("block 0"));  // by segment, not by request
  CHECK(contains(message_of(
                     [&] {
                       plan.request(Segment::grads, "x", DType::fp32, {1LL << 40, 1LL << 40});
                     },
                     ExitCode::configuration),
                 "more bytes than can be counted"));
  CHECK_THROWS_AS(plan.request(Segment::grads, "x", DType::fp32, {-1}), Error);
  CHECK(plan.rows().size() == 2);
}

TEST_CASE("an allocation that fails names the largest lines and the keys that help, and leaves nothing behind") {
  MemoryPlan plan;
  plan.request(Segment::params, "blocks", DType::fp32, {1000});
  plan.request(Segment::activations, "small", DType::fp32, {64});
  for (int i = 0; i < 3; ++i) plan.request(Segment::activations, "attention output", DType::fp32, {1 << 20});
  CountingDevice device(1 << 20);
  const std::string text = message_of([&] { const Arena arena(device, plan); }, ExitCode::out_of_memory);
  CHECK(contains(text, "segment 'activations' needs 12.0 MiB"));
  CHECK(contains(text, "attention output"));
  CHECK(text.find("attention output") < text.find("blocks"));
  for (const char* key : {"schedule.micro_batch", "parallel.zero", "model.seq_len"}) CHECK(contains(text, key));
  CHECK(device.in_use == 0);
}

TEST_CASE("scratch frames give back what they took, in stack order") {
  alignas(256) static std::byte storage[4096];
  ScratchStack stack(Tensor::dense(storage, DType::uint8, {4096}));
  {
    ScratchStack::Frame outer(stack, "mlp backward");
    const Tensor a = outer.take(DType::fp32, {10});
    {
      ScratchStack::Frame inner(stack, "norm");
      CHECK(inner.take(DType::fp64, {65}).data == storage + 256);
      CHECK(stack.in_use() == 256 + 768);
      const std::string text = message_of([&] { outer.take(DType::fp32, {1}); }, ExitCode::internal);
      CHECK(contains(text, "not the innermost"));
    }
    CHECK(a.data == storage);
    CHECK(stack.in_use() == 256);
    CHECK(outer.take(DType::fp32, {64}).data == storage + 256);
    const std::string text = message_of([&] { outer.take(DType::fp32, {1024}); }, ExitCode::internal);
    CHECK(contains(text, "mlp backward 512 B"));
    CHECK(outer.take(DType::uint8, {4096 - 512}).bytes() == 3584);  // exactly full
  }
  CHECK(stack.in_use() == 0);
  CHECK(stack.high_water() == 4096);
}

TEST_CASE("closing frames out of order is an error") {
  ScratchStack stack;
  auto* outer = new ScratchStack::Frame(stack, "outer");
  auto* inner = new ScratchStack::Frame(stack, "inner");
  CHECK(contains(message_of([&] { delete outer; }, ExitCode::internal), "scratch frame outer is closed out of order"));
  delete inner;
  // While an error unwinds the stack, frames close silently.
  CHECK_THROWS_AS(([&] {
                    ScratchStack other;
                    ScratchStack::Frame frame(other, "f");
                    fail(ExitCode::diverged, "x");
                  }()),
                  Error);
}

TEST_CASE("a measuring stack predicts what a real one needs") {
  const auto work = [](ScratchStack& stack) {
    ScratchStack::Frame a(stack, "a");
    a.take(DType::fp32, {1000, 3});
    {
      ScratchStack::Frame b(stack, "b");
      b.take(DType::bf16, {77});
      b.take(DType::fp64, {500});
    }
    ScratchStack::Frame c(stack, "c");
    c.take(DType::fp32, {5});
  };
  ScratchStack measuring;
  work(measuring);
  CHECK(measuring.high_water() == 12032 + 256 + 4096);
  std::vector<std::byte> storage(static_cast<std::size_t>(measuring.high_water()) + 256);
  std::byte* aligned = storage.data() + (256 - reinterpret_cast<std::uintptr_t>(storage.data()) % 256) % 256;
  ScratchStack exact(Tensor::dense(aligned, DType::uint8, {measuring.high_water()}));
  work(exact);
  ScratchStack short_by_one(Tensor::dense(aligned, DType::uint8, {measuring.high_water() - 1}));
  CHECK_THROWS_AS(work(short_by_one), Error);
}
