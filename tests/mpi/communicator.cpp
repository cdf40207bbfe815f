// SPDX-License-Identifier: Apache-2.0
// ranks: 1 2 3 4
/// CPU collectives: results have the bits of a serial sum in rank order, however tensors are cut, sent and waited for.
#include "llmtrain/backend/communicator.hpp"

#include <doctest/doctest.h>

#include <bit>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "support/ranks.hpp"

using namespace llmtrain;
using namespace llmtrain::test;

namespace {

template <class T>
std::vector<T> sums(int ranks, std::int64_t count, bool reversed = false) {
  std::vector<T> total = values<T>(reversed ? ranks - 1 : 0, count);
  for (int p = 1; p < ranks; ++p) {
    const std::vector<T> next = values<T>(reversed ? ranks - 1 - p : p, count);
    for (std::size_t i = 0; i < total.size(); ++i) total[i] += next[i];
  }
  return total;
}

const std::int64_t sizes[] = {0, 1, 2, 3, 5, 255, 1000, 20011};

template <class T>
void check_all_reduce(bool check) {
  Ranks ranks(check);
  const auto comm = ranks.make();
  for (const std::int64_t n : sizes) {
    CAPTURE(n);
    std::vector<T> data = values<T>(comm->rank(), n);
    Communicator::Batch batch(*comm, {});
    batch.all_reduce(view(data));
    ranks.stream.wait(batch.submit());
    CHECK(same_bits(data, sums<T>(comm->size(), n)));
  }
}

template <class T>
void check_reduce_scatter_and_gather(bool check) {
  Ranks ranks(check);
  const auto comm = ranks.make();
  const int p = comm->size(), me = comm->rank();
  for (const std::int64_t n : sizes) {  // a rank's part
    CAPTURE(n);
    const std::vector<T> expected = sums<T>(p, n * p);
    std::vector<T> whole = values<T>(me, n * p), part(static_cast<std::size_t>(n));
    Communicator::Batch apart(*comm, {});
    apart.reduce_scatter(view(part), view(whole));
    ranks.stream.wait(apart.submit());
    CHECK(same_bits(part, std::vector<T>(expected.begin() + me * n, expected.begin() + (me + 1) * n)));
    CHECK(same_bits(whole, values<T>(me, n * p)));

    const Tensor mine = view(whole).flat(me * n, n);
    Communicator::Batch in_place(*comm, {});
    in_place.reduce_scatter(mine, view(whole));
    ranks.stream.wait(in_place.submit());
    CHECK(std::equal(part.begin(), part.end(), whole.begin() + me * n));

    std::vector<T> gathered(whole.size());
    Communicator::Batch gather(*comm, {});
    gather.all_gather(view(gathered), view(part));
    gather.all_gather(view(whole), mine);  // in place, together with the other one
    ranks.stream.wait(gather.submit());
    CHECK(same_bits(gathered, expected));
    CHECK(same_bits(whole, expected));
  }
}

}  // namespace

TEST_CASE("sums have the bits of the serial sum in rank order") {
  for (const bool check : {false, true}) {
    check_all_reduce<float>(check);
    check_all_reduce<double>(check);
    check_all_reduce<std::int32_t>(check);
    check_all_reduce<std::int64_t>(check);
    check_reduce_scatter_and_gather<float>(check);
    check_reduce_scatter_and_gather<double>(check);
  }
  const int p = MpiComm::world().size();
  if (p > 2) CHECK_FALSE(same_bits(sums<float>(p, 1000), sums<float>(p, 1000, true)));  // the order shows in the data
}

TEST_CASE("bf16 is summed in fp32 and rounded once") {
  Ranks ranks(false);
  const auto comm = ranks.make();
  // 256 + p * 1 in bf16 steps of 2 would lose every single 1; the fp32 sum does not.
  std::vector<std::uint16_t> data(7, comm->rank() == 0 ? 0x4380 : 0x3f80);  // 256, then ones
  Communicator::Batch batch(*comm, {});
  batch.all_reduce(Tensor::dense(data.data(), DType::bf16, {7}));
  ranks.stream.wait(batch.submit());
  const std::uint16_t expected[] = {0x4380, 0x4380, 0x4381, 0x4382};  // 256, 257 -> 256 (tie to even), 258, 259 -> 260
  for (const std::uint16_t bits : data) CHECK(bits == expected[comm->size() - 1]);
}

TEST_CASE("maximum, and NaN wins it") {
  Ranks ranks(false);
  const auto comm = ranks.make();
  const auto run = [&]<class T>(T) {
    std::vector<T> data = values<T>(comm->rank(), 999), expected = values<T>(0, 999);
    for (int p = 1; p < comm->size(); ++p) {
      for (std::size_t i = 0; i < 999; ++i)
        expected[i] = std::max(expected[i], value<T>(p, static_cast<std::int64_t>(i)));
    }
    if constexpr (std::is_floating_point_v<T>) {
      if (comm->rank() == comm->size() - 1) data[3] = std::numeric_limits<T>::quiet_NaN();
      if (comm->rank() == 0) data[998] = std::numeric_limits<T>::quiet_NaN();
    }
    Communicator::Batch batch(*comm, {});
    batch.all_reduce(view(data), ReduceOp::max);
    ranks.stream.wait(batch.submit());
    for (std::size_t i = 0; i < 999; ++i) {
      const bool has_nan = std::is_floating_point_v<T> && (i == 3 || i == 998);
      if (has_nan ? data[i] == data[i] : data[i] != expected[i]) FAIL_CHECK("element " << i << " is " << data[i]);
    }
  };
  run(0.0F);
  run(0.0);
  run(std::int32_t{0});
  run(std::int64_t{0});
}

TEST_CASE("sums do not depend on how a tensor is cut") {
  Ranks ranks(false);
  constexpr std::int64_t n = 9001;
  std::vector<float> whole = values<float>(ranks.group.rank, n), cut = whole;
  const auto comm = ranks.make();
  ranks.bytes = 256;
  const auto narrow = ranks.make();
  Communicator::Batch batch(*comm, {});
  batch.all_reduce(view(whole));
  const Event first = batch.submit();
  std::int64_t begin = 0;
  for (const std::int64_t count : {1, 17, 4000, 0, 4983}) {
    Communicator::Batch pieces(*narrow, {});
    pieces.all_reduce(view(cut).flat(begin, count / 3));
    pieces.all_reduce(view(cut).flat(begin + count / 3, count - count / 3));
    ranks.stream.wait(pieces.submit());
    begin += count;
  }
  ranks.stream.wait(first);
  CHECK(begin == n);
  CHECK(same_bits(cut, whole));
  CHECK(same_bits(cut, sums<float>(comm->size(), n)));
}

TEST_CASE("broadcast from every root, in messages that are cut") {
  for (const bool check : {false, true}) {
    Ranks ranks(check, 2048, 1000);
    const auto comm = ranks.make();
    for (int root = 0; root < comm->size(); ++root) {
      for (const std::int64_t n : sizes) {
        std::vector<double> data = values<double>(comm->rank(), n);
        Communicator::Batch batch(*comm, {});
        batch.broadcast(view(data), root);
        ranks.stream.wait(batch.submit());
        CHECK(same_bits(data, values<double>(root, n)));
      }
    }
  }
}

TEST_CASE("batches in flight on two communicators, one ready when another is done") {
  for (const bool check : {false, true}) {
    Ranks ranks(check);
    const auto a = ranks.make(), b = ranks.make();
    const int p = a->size(), me = a->rank();
    constexpr std::int64_t n = 3001;
    std::vector<float> source = values<float>(me, n * p), part(n), other = values<float>(me + 50, 12345);
    Communicator::Batch unrelated(*a, {});
    unrelated.all_reduce(view(other));
    const Event last = unrelated.submit();
    Communicator::Batch scatter(*a, {});
    scatter.reduce_scatter(view(part), view(source));
    const Event scattered = scatter.submit();
    Communicator::Batch again(*b, scattered);  // over the same ranks, as replicate after shard
    again.all_reduce(view(part));
    const Event summed = again.submit();
    Communicator::Batch gather(*a, summed);
    gather.all_gather(view(source), view(part));
    ranks.stream.wait(gather.submit());
    ranks.stream.wait(last);
    const std::vector<float> scattered_sums = sums<float>(p, n * p);
    std::vector<float> expected(n);
    for (std::int64_t i = 0; i < n; ++i) {
      float total = scattered_sums[static_cast<std::size_t>(i)];
      for (int q = 1; q < p; ++q) total += scattered_sums[static_cast<std::size_t>(q * n + i)];
      expected[static_cast<std::size_t>(i)] = total;
    }
    for (int q = 0; q < p; ++q) CHECK(std::equal(expected.begin(), expected.end(), source.begin() + q * n));
  }
}

TEST_CASE("a group of one needs no MPI") {
  CpuDevice device(1, &no_kernels);
  const Group self{"self", 0, {3}, MpiComm()};
  const auto comm = device.make_communicator(self, Tensor{});
  std::vector<float> source = values<float>(0, 10), part(10), whole(10), alone = source;
  Communicator::Batch batch(*comm, {});
  batch.reduce_scatter(view(part), view(source));
  batch.all_gather(view(whole), view(source));
  batch.all_reduce(view(alone), ReduceOp::max);
  device.make_stream("test").wait(batch.submit());
  CHECK(same_bits(part, values<float>(0, 10)));
  CHECK(same_bits(whole, values<float>(0, 10)));
  CHECK(same_bits(alone, values<float>(0, 10)));
}

namespace {

/// The message of the Error that `action` throws; "" if none.
std::string message_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

bool contains(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("the in-flight check hides results until the wait and notices writes") {
  Ranks ranks(true);
  const auto comm = ranks.make();
  const int p = comm->size(), me = comm->rank();
  std::vector<float> part = values<float>(me, 100), whole(static_cast<std::size_t>(p) * 100);
  const auto gather = [&](Tensor destination, Tensor source) {
    Communicator::Batch batch(*comm, {});
    batch.all_gather(destination, source);
    const Event event = batch.submit();
    while (!ranks.device.has_happened(event)) ranks.device.progress();
    return event;
  };
  Event event = gather(view(whole), view(part));
  CHECK(std::all_of(whole.begin(), whole.end(), [](float x) { return x != x; }));
  ranks.stream.wait(event);
  CHECK(std::equal(part.begin(), part.end(), whole.begin() + me * 100));

  event = gather(view(whole), view(whole).flat(me * 100, 100));  // in place: this rank's part stays readable
  for (std::size_t i = 0; i < whole.size(); ++i) {
    const bool mine = static_cast<int>(i) / 100 == me;
    if ((whole[i] == whole[i]) != mine) FAIL_CHECK("element " << i << " is " << whole[i]);
  }
  ranks.stream.wait(event);

  event = gather(view(whole), view(part));
  part[99] += 1;
  CHECK(contains(message_of([&] { ranks.stream.wait(event); }), "all_gather of fp32 [100]: its source was changed"));
  event = gather(view(whole), view(part));
  whole[1] = 0;
  CHECK(contains(message_of([&] { ranks.stream.wait(event); }), "its destination was written"));

  Communicator::Batch batch(*comm, {});
  batch.all_reduce(view(part));
  event = batch.submit();
  part[0] = 1;
  CHECK(
      contains(message_of([&] { ranks.stream.wait(event); }), "all_reduce of fp32 [100]: its destination was written"));
}

TEST_CASE("ranks that issue different collectives are told so") {
  Ranks ranks(false);
  if (ranks.group.size() == 1) return;
  const int me = ranks.group.rank, p = ranks.group.size();
  std::vector<float> part(4), whole(static_cast<std::size_t>(p) * 4);
  {
    const auto comm = ranks.make();
    Communicator::Batch batch(*comm, {});
    if (me == 0) batch.all_gather(view(whole), view(part));
    if (me != 0) batch.reduce_scatter(view(part), view(whole));
    const Event event = batch.submit();
    const std::string text = message_of([&] { ranks.stream.wait(event); });
    CHECK(contains(text, me == 0 ? "a message of reduce_scatter arrived" : "a message of all_gather arrived"));
  }
  const auto comm = ranks.make();
  Communicator::Batch batch(*comm, {});
  const std::int64_t n = me == 0 ? 3 : 4;
  batch.all_gather(view(whole).flat(0, n * p), view(part).flat(0, n));
  const std::string text = message_of([&] { ranks.stream.wait(batch.submit()); });
  CHECK(contains(text, "do not issue the same"));
  MpiComm::world().barrier();  // nobody leaves while others still look for messages
}

TEST_CASE("what the CPU back end cannot do is refused when submitted") {
  Ranks ranks(false);
  const auto comm = ranks.make();
  std::vector<std::uint16_t> halves(8);
  Communicator::Batch batch(*comm, {});
  batch.all_reduce(Tensor::dense(halves.data(), DType::fp16, {8}));
  CHECK(contains(message_of([&] { batch.submit(); }), "cannot reduce fp16"));
  std::vector<float> whole(static_cast<std::size_t>(comm->size()) * 4 + 1);
  Communicator::Batch shifted(*comm, {});  // neither this rank's part nor apart from the source
  shifted.reduce_scatter(view(whole).flat(comm->rank() * 4 + 1, 4), view(whole).flat(0, comm->size() * 4));
  CHECK_THROWS_AS(shifted.submit(), Error);
}
