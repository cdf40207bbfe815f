// SPDX-License-Identifier: Apache-2.0
/// Reading ahead: the loader's micro-batches and errors, whatever was guessed.
#include "llmtrain/data/read_ahead.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <thread>

#include "data_files.hpp"
#include "llmtrain/data/source_dataset.hpp"

using namespace llmtrain;

namespace {

/// All of a set, at least `samples` samples of it.
std::shared_ptr<const Dataset> all_of(const std::string& prefix, std::int64_t seq_len, std::int64_t samples) {
  const auto source = std::make_shared<const IndexedDataset>(prefix);
  return std::make_shared<const SourceDataset>(source, SequenceRange{0, source->sequences()}, seq_len, samples, 7);
}

}  // namespace

TEST_CASE("reading ahead gives what the loader gives, whatever is asked for next") {
  const TestFolder folder;
  write_set(folder / "set", {40, 7, 90, 33});
  const auto train = all_of(folder / "set", 6, 72);
  const LoaderShape shape{2, 6, 8, 0, 1, 1000};
  Loader plain(train, shape), threaded(train, shape);
  Timers timers;
  ReadAhead reader(threaded, {1, 0, 1, 3, 2}, 9, timers);  // of two chunks, say
  const auto check = [&](std::int64_t step, std::int64_t micro) {
    CAPTURE(step);
    CAPTURE(micro);
    const MicroBatch a = plain.load(step, micro), b = reader.load(step, micro);
    CHECK(b.step == a.step);
    CHECK(std::ranges::equal(a.tokens, b.tokens));
    CHECK(std::ranges::equal(a.targets, b.targets));
    CHECK(std::ranges::equal(a.order, b.order));
    CHECK(std::ranges::equal(a.samples, b.samples));
  };
  reader.prepare(2);
  for (const std::int64_t step : {2, 3, 3, 8, 9, 10, 1}) {
    for (const std::int64_t micro : {1, 0, 1, 3, 2}) check(step, micro);
  }
  for (const std::int64_t micro : {2, 3, 1, 0, 2}) check(5, micro);  // not what was guessed
  CHECK(timers.totals().front().calls == 40);
  CHECK(reader.stalled_seconds() >= 0);
}

TEST_CASE("what fails ahead of its time is an error when it is asked for, each time") {
  const TestFolder folder;
  write_set(folder / "set", {3, 10, 20}, 1000, 30);  // id 29 stands once
  const auto train = all_of(folder / "set", 4, 8);
  const LoaderShape shape{2, 4, 2, 0, 1, 29};
  Loader plain(train, shape), threaded(train, shape);
  Timers timers;
  ReadAhead reader(threaded, {0}, 4, timers);
  int failed = 0;
  for (int pass = 0; pass < 2; ++pass) {
    for (std::int64_t step = 1; step <= 4; ++step) {
      std::string message;
      try {
        plain.load(step, 0);
      } catch (const Error& error) {
        message = error.what();
      }
      if (message.empty()) {
        CHECK_NOTHROW(reader.load(step, 0));
        continue;
      }
      ++failed;
      CHECK_FAILS(reader.load(step, 0), 65, message);
      CHECK_FAILS(reader.load(step, 0), 65, message);
    }
  }
  CHECK(failed == 4);  // neighbours share the token
}

TEST_CASE("data that are ready are not waited for") {
  const TestFolder folder;
  write_set(folder / "set", {100});
  Loader loader(all_of(folder / "set", 6, 6), {2, 6, 2, 0, 1, 1000});
  Timers timers;
  ReadAhead reader(loader, {0}, 3, timers);
  bool waited = true;
  while (waited) {  // until the thread was given time to be ahead
    const double before = reader.stalled_seconds();
    reader.prepare(1);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    reader.load(1, 0);
    reader.load(2, 0);
    waited = reader.stalled_seconds() != before;
  }
}
