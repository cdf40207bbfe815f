// SPDX-License-Identifier: Apache-2.0
/// Blends, and the order without an index: permutations, epochs, shares.
#include <doctest/doctest.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <set>

#include "data_files.hpp"
#include "llmtrain/data/blend.hpp"
#include "llmtrain/data/source_dataset.hpp"
#include "llmtrain/data/training_data.hpp"

using namespace llmtrain;

namespace {

using Numbers = std::vector<std::int64_t>;

Numbers sets_of(const std::vector<double>& weights, std::int64_t size) {
  const BlendIndex index(weights, size);
  Numbers sets;
  Numbers next(weights.size());
  for (std::int64_t i = 0; i < size; ++i) {
    sets.push_back(index[i].set);
    CHECK(index[i].sample == next[static_cast<std::size_t>(index[i].set)]++);
  }
  CHECK(std::equal(next.begin(), next.end(), index.drawn().begin()));
  return sets;
}

/// Each value of [0, size) once.
bool is_permutation(Numbers values) {
  std::sort(values.begin(), values.end());
  Numbers expected(values.size());
  std::iota(expected.begin(), expected.end(), 0);
  return values == expected;
}

DataConfig two_sets(const TestFolder& folder, double a, double b) {
  DataConfig data;
  data.train = {{folder / "a", a}, {folder / "b", b}};
  data.split = "100,0,0";
  return data;
}

RunConfig run_of(std::int64_t steps) {
  RunConfig run;
  run.steps = steps;
  return run;
}

}  // namespace

TEST_CASE("a blend takes the set that is furthest below its share") {
  CHECK(sets_of({0.3, 0.7}, 12) == Numbers{1, 0, 1, 1, 0, 1, 1, 0, 1, 1, 0, 1});
  CHECK(sets_of({1, 1, 2}, 10) == Numbers{2, 0, 1, 2, 0, 2, 1, 2, 0, 2});
  sets_of({5, 1, 0.01}, 5000);  // over several marks
  CHECK(samples_to_use(100, 0.125) == 13);
  CHECK(samples_to_build(1000, 0.5) == 503);
  CHECK_FAILS(BlendIndex(std::vector<double>(40000, 1.0), 1), 78, "40000 sets");
}

TEST_CASE("a permutation reaches every element once, for any size") {
  for (std::int64_t size = 1; size <= 300; ++size) {
    const Permutation permutation(size, 7, 3);
    Numbers values;
    for (std::int64_t i = 0; i < size; ++i) values.push_back(permutation(i));
    CHECK(is_permutation(values));
  }
  // Different seeds and streams, different orders; and a size that no memory holds.
  Numbers orders[3];
  for (std::int64_t i = 0; i < 100; ++i) {
    orders[0].push_back(Permutation(100, 1, 0)(i));
    orders[1].push_back(Permutation(100, 2, 0)(i));
    orders[2].push_back(Permutation(100, 1, 1)(i));
  }
  CHECK(orders[0] != orders[1]);
  CHECK(orders[0] != orders[2]);
  const std::int64_t huge = std::int64_t{1} << 61;
  std::set<std::int64_t> seen;
  for (std::int64_t i = 0; i < 1000; ++i) seen.insert(Permutation(huge + 5, 9, 0)(huge - i));
  CHECK(seen.size() == 1000);
}

TEST_CASE("neighbours of a shuffled order are no neighbours of the stream") {
  // Of a random permutation of 10000, one pair of neighbours in 5000 stays together: 2 of 9999 on average.
  int together = 0;
  const Permutation permutation(10000, 1234, 0);
  for (std::int64_t i = 1; i < 10000; ++i) together += std::abs(permutation(i) - permutation(i - 1)) == 1 ? 1 : 0;
  CHECK(together < 20);
}

TEST_CASE("a shuffled epoch reads each sample once, of any documents") {
  const TestFolder folder;
  write_set(folder / "a", {5, 0, 3, 9, 1, 1, 14, 4, 0, 6}, 1000, 1000);  // 43 tokens
  const auto source = std::make_shared<const IndexedDataset>(folder / "a");
  const std::int64_t seq_len = 4;
  const SourceDataset dataset(source, seq_len, ShuffledOrder(*source, {2, 9}, seq_len, 50, 3, 0));  // tokens 5 to 36
  const std::int64_t a_pass = (32 - 1) / seq_len;
  CHECK(dataset.samples() == 56);
  std::set<std::int64_t> shifts;
  for (std::int64_t epoch = 0; epoch < 8; ++epoch) {
    Numbers first;
    for (std::int64_t i = 0; i < a_pass; ++i) {
      std::vector<std::int32_t> sample(5);
      dataset.sample(epoch * a_pass + i, sample);
      for (std::size_t k = 1; k < sample.size(); ++k) CHECK(sample[k] == sample[k - 1] + 1);
      first.push_back(sample.front());
    }
    std::sort(first.begin(), first.end());
    CHECK(first.front() >= 5);
    CHECK(first.back() + 4 < 37);
    for (std::size_t k = 1; k < first.size(); ++k) CHECK(first[k] - first[k - 1] == seq_len);
    shifts.insert(first.front());
  }
  CHECK(shifts.size() > 1);  // not always the same tail is left over
}

TEST_CASE("blends of a deck: shares, one pass where no weights are given, and both orders") {
  const TestFolder folder;
  write_set(folder / "a", Numbers(30, 20), 1000, 1000);
  write_set(folder / "b", Numbers(10, 20), 1000, 1000);
  for (const SampleOrder order : {SampleOrder::megatron, SampleOrder::shuffled}) {
    DataConfig data = two_sets(folder, 1, 3);
    data.order = order;
    const auto count_of_b = [&](const Dataset& dataset, std::int64_t samples) {
      std::int64_t count = 0;
      for (std::int64_t i = 0; i < samples; ++i) count += dataset.pieces(i).front().prefix == folder / "b" ? 1 : 0;
      return count;
    };
    const TrainingData weighted = open_training_data(data, run_of(100), 4, 4, 1000);
    CHECK(weighted.warnings.empty());
    CHECK(weighted.train->samples() == 400);
    CHECK(count_of_b(*weighted.train, 400) == 300);

    const TrainingData plain = open_training_data(two_sets(folder, 0, 0), run_of(10), 4, 4, 1000);
    CHECK(plain.warnings.empty());
    CHECK(count_of_b(*plain.train, 40) == 10);
    data.train[0].weight = data.train[1].weight = 0;
    const TrainingData more = open_training_data(data, run_of(100), 4, 4, 1000);
    REQUIRE(more.warnings.size() == 1);
    CHECK(more.warnings[0].starts_with("one pass over the 2 sets of data.train gives 198 samples"));
    CHECK(more.train->samples() == (600 - 1) / 4 + (200 - 1) / 4);
  }
}

TEST_CASE("a blend names the set that cannot be used, and leaves small validation parts out") {
  const TestFolder folder;
  write_set(folder / "a", Numbers(50, 20), 1000, 1000);
  write_set(folder / "b", {30, 2}, 1000, 1000);
  DataConfig data = two_sets(folder, 1, 1);
  data.split = "50,50,0";
  const TrainingData opened = open_training_data(data, run_of(5), 4, 4, 1000);
  REQUIRE(opened.warnings.size() == 1);
  CHECK(opened.warnings[0].find("/b: its validation part") != std::string::npos);
  REQUIRE(opened.valid.size() == 1);
  for (std::int64_t i = 0; i < opened.valid[0].dataset->samples(); ++i) {
    CHECK(opened.valid[0].dataset->pieces(i).front().prefix == folder / "a");
  }
  write_set(folder / "b", {2, 30}, 1000, 1000);
  CHECK_FAILS(open_training_data(data, run_of(5), 4, 4, 1000), 65, "/b: its training part");
}
