// SPDX-License-Identifier: Apache-2.0
/// Hazards made on purpose, each named by the checker; and the same sequences with their events, which are clean.
#include <doctest/doctest.h>

#include "llmtrain/backend/communicator.hpp"
#include "llmtrain/backend/hazards.hpp"
#include "llmtrain/backend/kernels.hpp"

using namespace llmtrain;

namespace {

/// Two streams and a group of two on the trace back end, watched.
struct Scene {
  std::unique_ptr<Device> device = make_trace_device(DeviceKind::cpu);
  Stream compute = device->make_stream("compute"), side = device->make_stream("side");
  std::unique_ptr<Communicator> shard = device->make_communicator({"shard", 0, {0, 1}, MpiComm{}}, {});
  Kernels& kernels = device->kernels();
  Tensor weights = memory(), gradient = memory(), other = memory();
  HazardChecker checker{[this](const void* address) {
    if (address == weights.data) return "weights";
    return address == gradient.data ? "gradient" : "other";
  }};

  Scene() { device->set_observer(&checker); }
  ~Scene() { device->set_observer(nullptr); }

  Tensor memory() { return Tensor::dense(device->allocate(1024, MemorySpace::device), DType::fp32, {256}); }
  Event gather(Tensor whole, Event ready) {
    Communicator::Batch batch(*shard, ready);
    batch.all_gather(whole, whole.flat(0, 128));
    return batch.submit();
  }
  Event reduce(Tensor whole, Event ready) {
    Communicator::Batch batch(*shard, ready);
    batch.reduce_scatter(whole.flat(0, 128), whole);
    return batch.submit();
  }
  void write(Tensor tensor, Stream stream) { kernels.fill(stream, tensor, 1.0); }
  void read(Tensor tensor, Stream stream) { kernels.copy(stream, other, tensor); }
};

/// Runs it; the message of the hazard found, or "".
template <class Sequence>
std::string hazard(Sequence sequence) {
  Scene scene;
  try {
    sequence(scene);
  } catch (const Error& error) {
    CHECK(error.code() == ExitCode::internal);
    return error.what();
  }
  return {};
}

void check_names(const std::string& message, std::initializer_list<const char*> parts) {
  CAPTURE(message);
  CHECK(message.rfind("hazard: ", 0) == 0);
  for (const char* part : parts) CHECK(message.find(part) != std::string::npos);
}

}  // namespace

TEST_CASE("a missing wait after a collective") {
  const auto sequence = [](bool wait) {
    return hazard([&](Scene& s) {
      s.write(s.weights, s.compute);
      const Event arrival = s.gather(s.weights, s.compute.record());
      if (wait) s.compute.wait(arrival);
      s.read(s.weights, s.compute);
    });
  };
  CHECK(sequence(true).empty());
  check_names(sequence(false), {"copy (operation 2 of stream 0) reads weights", "written by all_gather",
                                "(operation 1 of group 'shard')"});
}

TEST_CASE("a missing ready event before a collective") {
  const auto sequence = [](bool ready) {
    return hazard([&](Scene& s) {
      s.write(s.gradient, s.compute);
      s.compute.wait(s.reduce(s.gradient, ready ? s.compute.record() : Event{}));
      s.read(s.gradient, s.compute);
    });
  };
  CHECK(sequence(true).empty());
  check_names(sequence(false), {"reduce_scatter", "reads gradient", "written by fill (operation 1 of stream 0)"});
}

TEST_CASE("a source overwritten in flight") {
  const auto sequence = [](bool wait) {
    return hazard([&](Scene& s) {
      s.write(s.gradient, s.compute);
      const Event sent = s.reduce(s.gradient, s.compute.record());
      if (wait) s.compute.wait(sent);
      s.write(s.gradient.flat(128, 128), s.compute);  // the part that is only read
    });
  };
  CHECK(sequence(true).empty());
  check_names(sequence(false), {"fill", "writes other", "still be read by reduce_scatter"});
}

TEST_CASE("a ring slot reused too early") {
  const auto sequence = [](bool remember) {
    return hazard([&](Scene& s) {
      const Tensor slots[] = {s.weights, s.gradient};
      Event landed[2];  // of the batch that last used the slot
      for (int i = 0; i < 4; ++i) {
        const int slot = i % 2;
        if (remember) s.compute.wait(landed[slot]);
        s.write(slots[slot], s.compute);
        landed[slot] = s.reduce(slots[slot], s.compute.record());
      }
    });
  };
  CHECK(sequence(true).empty());
  check_names(sequence(false), {"fill (operation 3 of stream 0) writes weights", "reduce_scatter"});
}

TEST_CASE("weights published against the next forward") {
  // The side stream updates and gathers weights, while the next forward on the compute stream reads them.
  const auto sequence = [](bool forward_waits, bool update_waits) {
    return hazard([&](Scene& s) {
      s.read(s.weights, s.compute);  // this step's backward
      if (update_waits) s.side.wait(s.compute.record());
      s.write(s.weights.flat(0, 128), s.side);
      const Event published = s.gather(s.weights, s.side.record());
      if (forward_waits) s.compute.wait(published);
      s.read(s.weights, s.compute);
    });
  };
  CHECK(sequence(true, true).empty());
  check_names(sequence(false, true), {"copy", "reads weights", "written by all_gather"});
  check_names(sequence(true, false), {"fill", "writes weights", "read by copy"});
}

TEST_CASE("two streams on one scratch") {
  const auto sequence = [](bool ordered) {
    return hazard([&](Scene& s) {
      s.write(s.other, s.compute);
      if (ordered) s.side.wait(s.compute.record());
      s.write(s.other.flat(64, 8), s.side);
    });
  };
  CHECK(sequence(true).empty());
  check_names(sequence(false),
              {"fill (operation 1 of stream 1) writes other", "written by fill (operation 1 of stream 0)"});
}

TEST_CASE("what orders accesses: streams, batches of one group, chains of events, the host") {
  CHECK(hazard([](Scene& s) {  // a chain over two streams and a group
          s.write(s.weights, s.compute);
          s.side.wait(s.compute.record());
          s.write(s.weights, s.side);
          const Event gathered = s.gather(s.weights, s.side.record());
          s.compute.wait(gathered);
          s.read(s.weights, s.compute);
        })
            .empty());
  CHECK(hazard([](Scene& s) {  // batches of one group run in order
          s.write(s.weights, s.compute);
          s.gather(s.weights, s.compute.record());
          s.gather(s.weights, {});
        })
            .empty());
  CHECK(hazard([](Scene& s) {  // what the host has waited for is over for everybody
          s.write(s.weights, s.compute);
          s.compute.synchronize();
          s.write(s.weights, s.side);
        })
            .empty());
  CHECK(hazard([](Scene& s) {  // readers do not exclude each other, neighbours do not matter
          s.kernels.copy(s.compute, s.other.flat(0, 64), s.weights.flat(0, 64));
          s.kernels.copy(s.side, s.other.flat(64, 64), s.weights.flat(0, 64));
          s.write(s.gradient.flat(0, 100), s.compute);
          s.write(s.gradient.flat(100, 100), s.side);
        })
            .empty());
  // An event covers what was issued before its record, not what follows.
  check_names(hazard([](Scene& s) {
                const Event early = s.compute.record();
                s.write(s.weights, s.compute);
                s.side.wait(early);
                s.read(s.weights, s.side);
              }),
              {"copy", "reads weights", "written by fill"});
  // A reader is not forgotten when another one is ordered.
  check_names(hazard([](Scene& s) {
                s.kernels.copy(s.compute, s.other.flat(0, 64), s.weights.flat(0, 64));
                s.kernels.copy(s.side, s.other.flat(64, 64), s.weights.flat(32, 64));
                s.write(s.weights, s.compute);
              }),
              {"fill", "writes other", "read by copy (operation 1 of stream 1)"});
}

TEST_CASE("what was given back is not touched until it is lent again; collectives may") {
  const auto lend = [](Scene& s, LeaseNote::Kind kind, Tensor tensor) {
    s.checker.on_lease({kind, "block 1", std::span(&tensor, 1)});
  };
  using Kind = LeaseNote::Kind;
  const auto message = [&](auto after) {
    return hazard([&](Scene& s) {
      lend(s, Kind::begins, s.weights);
      s.read(s.weights, s.compute);
      lend(s, Kind::ends, s.weights);
      after(s);
    });
  };
  check_names(message([](Scene& s) { s.write(s.weights.flat(255, 1), s.compute); }),
              {"fill", "after the lease of block 1"});
  check_names(message([](Scene& s) { s.read(s.weights, s.compute); }),
              {"copy", "weights", "after the lease of block 1"});
  CHECK(message([](Scene& s) { s.compute.wait(s.gather(s.weights, s.compute.record())); }).empty());
  CHECK(message([](Scene& s) { s.read(s.gradient, s.compute); }).empty());
  CHECK(message([&](Scene& s) {
          lend(s, Kind::all_over, {});
          s.write(s.weights, s.compute);
        }).empty());
  // Another lease of the middle leaves both sides as they were, and twice lent is given back twice.
  const auto middle = [&](std::int64_t begin, std::int64_t count, int ends) {
    return message([&](Scene& s) {
      const Tensor part = s.weights.flat(64, 128);
      lend(s, Kind::begins, part);
      lend(s, Kind::begins, part);
      for (int i = 0; i < ends; ++i) lend(s, Kind::ends, part);
      s.write(s.weights.flat(begin, count), s.compute);
    });
  };
  CHECK(middle(64, 128, 0).empty());
  CHECK(middle(64, 128, 1).empty());
  check_names(middle(64, 128, 2), {"after the lease"});
  check_names(middle(63, 1, 0), {"after the lease"});
  check_names(middle(192, 1, 0), {"after the lease"});
  check_names(middle(100, 100, 0), {"after the lease"});
}
