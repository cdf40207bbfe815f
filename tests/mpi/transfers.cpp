// SPDX-License-Identifier: Apache-2.0
// ranks: 1 2 3 4
/// What moves between ranks of the CPU and is not summed: sends and receives, and shifts around the ring.
#include <doctest/doctest.h>

#include <algorithm>

#include "support/ranks.hpp"

using namespace llmtrain;
using namespace llmtrain::test;

TEST_CASE("a ring of sends and receives, several in flight") {
  for (const bool check : {false, true}) {
    Ranks ranks(check);
    const auto comm = ranks.make();
    const int p = comm->size(), me = comm->rank();
    if (p == 1) continue;
    const int next = (me + 1) % p, previous = (me - 1 + p) % p;
    std::vector<std::vector<float>> sent, received;
    std::vector<Event> events;
    for (int k = 0; k < 5; ++k) {
      const std::int64_t n = k * 5000 + 1;
      sent.push_back(values<float>(me * 10 + k, n));
      received.emplace_back(static_cast<std::size_t>(n));
      Communicator::Batch batch(*comm, {});
      batch.send(view(sent.back()), next);
      batch.receive(view(received.back()), previous);
      events.push_back(batch.submit());
    }
    ranks.stream.wait(events[4]);  // they complete in issue order, so this is enough
    for (int k = 0; k < 5; ++k) {
      CHECK(ranks.device.has_happened(events[static_cast<std::size_t>(k)]));
      CHECK(same_bits(received[static_cast<std::size_t>(k)], values<float>(previous * 10 + k, k * 5000 + 1)));
    }
    if (me < 2) {  // a pipeline: only two ranks take part, one way
      std::vector<float> data = values<float>(7, 30000), copy(30000);
      Communicator::Batch batch(*comm, {});
      if (me == 0) batch.send(view(data), 1);
      if (me == 1) batch.receive(view(copy), 0);
      ranks.stream.wait(batch.submit());
      CHECK((me == 0 || same_bits(copy, data)));
    }
  }
}

TEST_CASE("shifts by every distance, several in a batch and in flight, and a copy beside them") {
  for (const bool check : {false, true}) {
    Ranks ranks(check);
    const auto comm = ranks.make();
    const int p = comm->size(), me = comm->rank();
    constexpr std::int64_t n = 7001;
    // As tokens are gathered: every rank's values, this rank's own by a copy.
    const std::vector<float> own = values<float>(me, n), more = values<float>(me + 100, 3 * n);
    std::vector<float> all(static_cast<std::size_t>(p * n)), others(static_cast<std::size_t>(3 * n * p));
    std::vector<float> source = own, longer = more;
    Event last{};
    for (int distance = 1; distance < p; ++distance) {
      const int from = (me - distance + p) % p;
      Communicator::Batch batch(*comm, {});
      batch.shift(view(all).flat(from * n, n), view(source), distance);
      batch.shift(view(others).flat(from * 3 * n, 3 * n), view(longer), distance);
      last = batch.submit();
    }
    Communicator::Batch copies(*comm, last);
    copies.copy(view(all).flat(me * n, n), view(source));
    copies.copy(view(others).flat(me * 3 * n, 3 * n), view(longer));
    ranks.stream.wait(copies.submit());
    for (int rank = 0; rank < p; ++rank) {
      const std::vector<float> first = values<float>(rank, n), second = values<float>(rank + 100, 3 * n);
      CHECK(std::equal(first.begin(), first.end(), all.begin() + rank * n));
      CHECK(std::equal(second.begin(), second.end(), others.begin() + rank * 3 * n));
    }
    if (p == 1) continue;
    Communicator::Batch wrong(*comm, {});
    CHECK_THROWS_AS(wrong.shift(view(all), view(all), 0), Error);
    CHECK_THROWS_AS(wrong.shift(view(all), view(all), p), Error);
    CHECK_THROWS_AS(wrong.shift(view(all), view(source), 1), Error);
  }
}
