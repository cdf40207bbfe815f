// SPDX-License-Identifier: Apache-2.0
/// Micro-batches: the same samples for every layout, sorted orders, refused ids, and the choice of data by a deck.
#include "llmtrain/data/loader.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <set>

#include "data_files.hpp"
#include "llmtrain/data/sidecar.hpp"
#include "llmtrain/data/source_dataset.hpp"
#include "llmtrain/data/training_data.hpp"

using namespace llmtrain;

namespace {

DataConfig data_of(const std::string& prefix, const std::string& split = "100,0,0") {
  DataConfig data;
  data.train = {{prefix, 0}};
  data.split = split;
  return data;
}

RunConfig run_of(std::int64_t steps) {
  RunConfig run;
  run.steps = steps;
  return run;
}

using Row = std::vector<std::int32_t>;

/// All rows of a step in sample order: micro-batches, then ranks, then rows.
std::vector<Row> rows_of_step(const std::shared_ptr<const Dataset>& dataset, std::int64_t micro_batch, int data_size,
                              std::int64_t global_batch, std::int64_t step) {
  const std::int64_t seq_len = dataset->seq_len();
  std::vector<Row> rows;
  const std::int64_t micro_batches = global_batch / (micro_batch * data_size);
  for (std::int64_t micro = 0; micro < micro_batches; ++micro) {
    for (int rank = 0; rank < data_size; ++rank) {
      Loader loader(dataset, {micro_batch, seq_len, global_batch, rank, data_size, 1000});
      REQUIRE(loader.micro_batches() == micro_batches);
      const MicroBatch batch = loader.load(step, micro);
      for (std::int64_t i = 0; i < micro_batch; ++i) {
        Row row(batch.tokens.begin() + i * seq_len, batch.tokens.begin() + (i + 1) * seq_len);
        const auto targets =
            batch.targets.subspan(static_cast<std::size_t>(i * seq_len), static_cast<std::size_t>(seq_len));
        CHECK(std::equal(row.begin() + 1, row.end(), targets.begin()));
        row.push_back(targets.back());
        rows.push_back(row);
      }
    }
  }
  return rows;
}

}  // namespace

TEST_CASE("a step's samples are those of the sample order, whatever the layout") {
  const TestFolder folder;
  write_set(folder / "set", {40, 7, 90, 33});
  const auto train = open_training_data(data_of(folder / "set"), run_of(6), 6, 4, 1000).train;
  for (std::int64_t step = 1; step <= 6; ++step) {
    std::vector<Row> expected;
    for (std::int64_t i = 0; i < 4; ++i) {
      expected.emplace_back(7);
      train->sample((step - 1) * 4 + i, expected.back());
    }
    for (const auto& [micro_batch, data_size] : {std::pair{4, 1}, {2, 1}, {1, 4}, {2, 2}, {1, 2}}) {
      CHECK(rows_of_step(train, micro_batch, data_size, 4, step) == expected);
    }
  }
}

TEST_CASE("positions, weights and the stable sorting permutation") {
  const TestFolder folder;
  write_set(folder / "set", {300}, 1000, 7);  // ids 0 to 6, again and again
  const auto train = open_training_data(data_of(folder / "set"), run_of(2), 10, 3, 1000).train;
  Loader loader(train, {3, 10, 3, 0, 1, 1000});
  const MicroBatch batch = loader.load(2, 0);
  CHECK(batch.step == 2);
  CHECK(batch.starts.empty());
  REQUIRE(batch.order.size() == 30);
  REQUIRE(batch.positions.size() == 30);
  REQUIRE(batch.weights.size() == 30);
  for (std::size_t i = 0; i < 30; ++i) {
    CHECK(batch.positions[i] == static_cast<std::int32_t>(i % 10));
    CHECK(batch.weights[i] == 1.0F);
  }
  std::vector<std::int32_t> expected(30);
  std::iota(expected.begin(), expected.end(), 0);
  std::stable_sort(expected.begin(), expected.end(), [&](std::int32_t a, std::int32_t b) {
    return batch.tokens[static_cast<std::size_t>(a)] < batch.tokens[static_cast<std::size_t>(b)];
  });
  CHECK(std::equal(expected.begin(), expected.end(), batch.order.begin()));
}

TEST_CASE("the target after the masked token has no weight, whatever the layout") {
  const TestFolder folder;
  write_set(folder / "set", {300}, 1000, 7);
  const auto train = open_training_data(data_of(folder / "set"), run_of(2), 10, 4, 1000).train;
  for (const std::int64_t micro_batch : {1, 2, 4}) {
    Loader loader(train, {micro_batch, 10, 4, 0, 1, 1000, 3});
    for (std::int64_t m = 0; m < loader.micro_batches(); ++m) {
      const MicroBatch batch = loader.load(1, m);
      std::int64_t masked = 0;
      for (std::size_t i = 0; i < batch.tokens.size(); ++i) {
        CHECK(batch.weights[i] == (batch.tokens[i] == 3 ? 0.0F : 1.0F));
        masked += batch.weights[i] == 0 ? 1 : 0;
      }
      CHECK(masked > 0);
    }
  }
}

TEST_CASE("a micro-batch stays as it was while the next one is loaded, and loading again gives the same") {
  const TestFolder folder;
  write_set(folder / "set", {500});
  const auto train = open_training_data(data_of(folder / "set"), run_of(8), 8, 4, 1000).train;
  Loader loader(train, {2, 8, 4, 0, 1, 1000});
  const MicroBatch first = loader.load(3, 0);
  const Row tokens(first.tokens.begin(), first.tokens.end());
  const Row order(first.order.begin(), first.order.end());
  const MicroBatch second = loader.load(3, 1);
  CHECK(std::equal(tokens.begin(), tokens.end(), first.tokens.begin()));
  CHECK(std::equal(order.begin(), order.end(), first.order.begin()));
  CHECK_FALSE(std::equal(tokens.begin(), tokens.end(), second.tokens.begin()));
  loader.load(8, 1);
  const MicroBatch again = loader.load(3, 0);
  CHECK(std::equal(tokens.begin(), tokens.end(), again.tokens.begin()));
}

TEST_CASE("an id outside the vocabulary is named with its place, never wrapped (B40)") {
  const TestFolder folder;
  write_set(folder / "set", {3, 10, 20}, 1000, 30);  // id 29 stands once, in a target of the last sequence
  const auto train = open_training_data(data_of(folder / "set"), run_of(1), 4, 8, 29).train;
  Loader loader(train, {8, 4, 8, 0, 1, 29});
  CHECK_FAILS(loader.load(1, 0), 65,
              "set: sequence 2 (document 2), token 16 has id 29, but the model's vocabulary is 29");
  Loader enough(train, {8, 4, 8, 0, 1, 30});
  CHECK_NOTHROW(enough.load(1, 0));

  // A negative id can only come from another program's file.
  write_set(folder / "wide", {9}, 70000);
  std::string bin = read_file(folder / "wide.bin");
  bin.replace(8, 4, "\xFF\xFF\xFF\xFF");
  write_file(folder / "wide.bin", bin);
  const auto wide = open_training_data(data_of(folder / "wide"), run_of(1), 4, 2, 100).train;
  Loader negative(wide, {2, 4, 2, 0, 1, 100});
  CHECK_FAILS(negative.load(1, 0), 65, "token 2 has id -1");
}

TEST_CASE("a sidecar's tokenizer and largest id are checked when the set is opened, if it is this set's") {
  const TestFolder folder;
  write_set(folder / "set", {50});
  Sidecar sidecar;
  sidecar.inputs = {"a \"quoted\"\n\\name"};
  sidecar.key = "text";
  sidecar.tokenizer = "bytes";
  sidecar.tokens = 50;
  sidecar.max_token = 49;
  write_file(folder / "set.json", to_json(sidecar));
  const auto read = read_sidecar(folder / "set");
  REQUIRE(read.has_value());
  CHECK(read->inputs == sidecar.inputs);
  CHECK(read->tokenizer == "bytes");
  CHECK(read->max_token == 49);
  CHECK_FAILS(open_training_data(data_of(folder / "set"), run_of(1), 4, 2, 49), 65, "holds token id 49");
  CHECK_NOTHROW(open_training_data(data_of(folder / "set"), run_of(1), 4, 2, 50, "bytes"));
  CHECK_FAILS(open_training_data(data_of(folder / "set"), run_of(1), 4, 2, 50, "other"), 78,
              "set: was made with tokenizer bytes, but data.tokenizer is other");
  sidecar.tokens = 51;
  write_file(folder / "set.json", to_json(sidecar));
  CHECK_NOTHROW(open_training_data(data_of(folder / "set"), run_of(1), 4, 2, 49));
  write_file(folder / "set.json", "{\"other\": 1}");
  CHECK_NOTHROW(open_training_data(data_of(folder / "set"), run_of(1), 4, 2, 49));
}

TEST_CASE("sizes and seeds of train and valid") {
  const TestFolder folder;
  write_set(folder / "set", {50, 50, 50, 50, 50, 50, 50, 50, 50, 50});
  DataConfig data = data_of(folder / "set", "80,20,0");
  data.eval_batches = 3;
  const auto opened = open_training_data(data, run_of(10), 4, 8, 1000);
  CHECK(opened.warnings.empty());
  CHECK(opened.train->samples() >= 80);
  REQUIRE(opened.valid.size() == 1);
  CHECK(opened.valid[0].name == "valid");
  CHECK(opened.valid[0].dataset->samples() >= 24);
  // The two parts share no sequence.
  std::set<std::int64_t> train;
  for (std::int64_t i = 0; i < opened.train->samples(); ++i) {
    for (const SamplePiece& piece : opened.train->pieces(i)) train.insert(piece.sequence);
  }
  CHECK(train == std::set<std::int64_t>{0, 1, 2, 3, 4, 5, 6, 7});
  CHECK(opened.valid[0].dataset->pieces(0).front().sequence >= 8);

  // valid's order depends on neither run.steps nor eval_every
  data.eval_every = 1;
  const auto longer = open_training_data(data, run_of(500), 4, 8, 1000);
  Row a(5), b(5);
  for (std::int64_t i = 0; i < 24; ++i) {
    opened.valid[0].dataset->sample(i, a);
    longer.valid[0].dataset->sample(i, b);
    CHECK(a == b);
  }
  data.eval_every = 0;
  CHECK(open_training_data(data, run_of(10), 4, 8, 1000).valid.empty());

  // data.seed 0 means run.seed; data.samples fixes the order against run.steps
  const auto first_rows = [&](std::int64_t run_seed, std::int64_t data_seed, std::int64_t samples, std::int64_t steps) {
    RunConfig run = run_of(steps);
    run.seed = run_seed;
    data.seed = data_seed;
    data.samples = samples;
    return rows_of_step(open_training_data(data, run, 4, 8, 1000).train, 8, 1, 8, 1);
  };
  CHECK(first_rows(5, 0, 0, 10) == first_rows(9, 5, 0, 10));
  CHECK(first_rows(5, 0, 0, 10) != first_rows(9, 0, 0, 10));
  CHECK(first_rows(5, 0, 0, 10) != first_rows(5, 0, 0, 100));
  CHECK(first_rows(5, 0, 80, 100) == first_rows(5, 0, 0, 10));
}

TEST_CASE("more steps than samples go round again, with a warning") {
  const TestFolder folder;
  write_set(folder / "set", {41});
  DataConfig data = data_of(folder / "set");
  data.samples = 10;
  const auto opened = open_training_data(data, run_of(6), 4, 2, 1000);
  REQUIRE(opened.train->samples() == 10);
  REQUIRE(opened.warnings.size() == 1);
  CHECK(opened.warnings[0].find("data.samples 10") != std::string::npos);
  CHECK(rows_of_step(opened.train, 2, 1, 2, 6) == rows_of_step(opened.train, 2, 1, 2, 1));
}

TEST_CASE("sets and parts that are too small (B25)") {
  const TestFolder folder;
  write_set(folder / "set", {2, 1, 1, 0});
  CHECK_FAILS(open_training_data(data_of(folder / "set"), run_of(10), 4, 2, 1000), 65,
              "training part, sequences 0 to 4 of 4, has 4 tokens, but one sample takes seq_len + 1 = 5");
  // one sample's tokens are enough for any number of samples
  write_set(folder / "one", {5});
  CHECK(open_training_data(data_of(folder / "one"), run_of(500), 4, 2, 1000).train->samples() >= 1000);

  // an empty training part, an empty validation part; at once, not after a loop
  write_set(folder / "ten", {20, 20, 20, 20, 20, 20, 20, 20, 20, 20});
  const auto started = std::chrono::steady_clock::now();
  CHECK_FAILS(open_training_data(data_of(folder / "ten", "0.002,9998,0"), run_of(10), 4, 2, 1000), 65, "has 0 tokens");
  const auto opened = open_training_data(data_of(folder / "ten", "9998,0.002,0.002"), run_of(10), 4, 2, 1000);
  CHECK(std::chrono::steady_clock::now() - started < std::chrono::seconds(1));
  CHECK(opened.train);
  CHECK(opened.valid.empty());
  REQUIRE(opened.warnings.size() == 1);
  CHECK(opened.warnings[0].find("evaluation is off") != std::string::npos);
  // a share of nothing was asked for: no warning
  CHECK(open_training_data(data_of(folder / "ten", "1,0,0"), run_of(10), 4, 2, 1000).warnings.empty());
}

TEST_CASE("data.valid takes the place of the split") {
  const TestFolder folder;
  write_set(folder / "train", {20, 20});
  write_set(folder / "valid", {30});
  write_set(folder / "tiny", {3});
  DataConfig data = data_of(folder / "train", "nonsense");
  data.valid = {{folder / "valid", 0}};
  const auto opened = open_training_data(data, run_of(1), 4, 2, 1000);
  REQUIRE(opened.valid.size() == 1);
  CHECK(opened.valid[0].name == "valid");
  CHECK(opened.valid[0].dataset->pieces(0).front().prefix == folder / "valid");

  // Several sets: each whole, in the deck's order, by the last part of the prefix where that tells them apart.
  std::filesystem::create_directory(folder / "b");
  write_set(folder / "b/valid", {40});
  data.valid = {{folder / "b/valid", 0}, {folder / "train", 0}, {folder / "valid", 0}};
  const auto several = open_training_data(data, run_of(1), 4, 2, 1000).valid;
  REQUIRE(several.size() == 3);
  CHECK(several[0].name == folder / "b/valid");
  CHECK(several[1].name == "train");
  CHECK(several[2].name == folder / "valid");
  CHECK(several[0].dataset->pieces(0).front().prefix == folder / "b/valid");
  data.valid = {{folder / "tiny", 0}};
  CHECK_FAILS(open_training_data(data, run_of(1), 4, 2, 1000), 65, "tiny");
  data.valid = {{folder / "none", 0}};
  CHECK_FAILS(open_training_data(data, run_of(1), 4, 2, 1000), 66, "none.idx");
}

TEST_CASE("what a deck asks wrongly is said before any file is opened") {
  DataConfig data = data_of("/does/not/exist", "98,x,0");
  CHECK_FAILS(open_training_data(data, run_of(1), 4, 2, 1000), 78, "data.split");
  data.split = "98,2,0";
  CHECK_FAILS(open_training_data(data, run_of(std::int64_t{1} << 62), 4, 4, 1000), 78, "run.steps");
  CHECK_FAILS(open_training_data(data, run_of(1), 4, 2, 1000), 66, "/does/not/exist.idx");
  data.train.clear();
  CHECK_FAILS(open_training_data(data, run_of(1), 4, 2, 1000), 78, "data.train");
}

TEST_CASE("an index that changes while in use is an error") {
  const TestFolder folder;
  write_set(folder / "set", {50});
  const auto train = open_training_data(data_of(folder / "set"), run_of(1), 4, 2, 1000).train;
  Loader loader(train, {2, 4, 2, 0, 1, 1000});
  std::filesystem::resize_file(folder / "set.idx", 40);
  CHECK_FAILS(loader.load(1, 0), 65, "set.idx has 40 bytes");
}

TEST_CASE("document masks: where each token's document begins, and positions that restart there") {
  const TestFolder folder;
  write_set(folder / "set", {3, 0, 5, 1, 9, 2});
  const auto source = std::make_shared<const IndexedDataset>(folder / "set");
  const auto dataset = std::make_shared<const SourceDataset>(source, SequenceRange{0, 6}, 6, 9, 5);
  LoaderShape shape{3, 6, 3, 0, 1, 1000};
  shape.document_mask = true;
  Loader loader(dataset, shape);
  Loader without(dataset, {3, 6, 3, 0, 1, 1000});
  for (std::int64_t step = 1; step <= 3; ++step) {
    const MicroBatch batch = loader.load(step, 0);
    const MicroBatch plain = without.load(step, 0);
    CHECK(std::equal(batch.tokens.begin(), batch.tokens.end(), plain.tokens.begin()));
    CHECK(plain.starts.empty());
    CHECK(plain.documents == 0);
    REQUIRE(batch.starts.size() == 18);
    std::int64_t documents = 0;
    for (std::size_t row = 0; row < 3; ++row) {
      std::size_t at = row * 6;
      for (const SamplePiece& piece : dataset->pieces((step - 1) * 3 + static_cast<std::int64_t>(row))) {
        const std::size_t begin = at;
        documents += at < row * 6 + 6 ? 1 : 0;
        for (std::int64_t k = 0; k < piece.tokens && at < row * 6 + 6; ++k, ++at) {
          CHECK(batch.starts[at] == static_cast<std::int32_t>(begin - row * 6));
          CHECK(batch.positions[at] == static_cast<std::int32_t>(at - begin));
          CHECK(plain.positions[at] == static_cast<std::int32_t>(at - row * 6));
        }
      }
      CHECK(at == row * 6 + 6);
    }
    CHECK(batch.documents == documents);
  }
}
