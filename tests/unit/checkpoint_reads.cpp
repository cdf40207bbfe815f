// SPDX-License-Identifier: Apache-2.0
/// Boxes of a stored matrix that is large enough for reads to be split, or to take many rows at once.
#include "damage.hpp"
#include "llmtrain/checkpoint/deal.hpp"

using namespace llmtrain;
using namespace checkpoint_test;

TEST_CASE("blocks short and long, near each other and far apart, come from their places") {
  const Scratch scratch;
  constexpr std::int64_t rows = 150, cols = 20000;  // 12 MB: some reads are split, some take many rows at once
  std::vector<float> values(rows * cols);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  const Piece whole{"/model/x", DType::fp32, {rows, cols}, {0, 0}, {rows, cols}, 0, rows * cols, values.data()};
  const fs::path folder = save_checkpoint(alone, scratch.path(), state_at(1), std::span(&whole, 1), {}).folder;
  const CheckpointReader reader(alone, open_checkpoint(alone, folder));
  struct Box {
    std::int64_t row, rows, col, cols;
  };
  for (const Box& box : {Box{0, rows, 0, cols}, Box{0, rows, 3, 1}, Box{7, 140, 100, 300}, Box{1, 149, 1000, 17000},
                         Box{rows - 1, 1, cols - 1, 1}, Box{5, 2, 0, cols}}) {
    std::vector<float> read(static_cast<std::size_t>(box.rows * box.cols), -1);
    const Piece part{"/model/x",           DType::fp32, {rows, cols},        {box.row, box.col},
                     {box.rows, box.cols}, 0,           box.rows * box.cols, read.data()};
    CAPTURE(box.cols);
    for (const bool proven : {true, false}) {
      std::ranges::fill(read, -1.0F);
      if (proven) {
        reader.read(std::span(&part, 1));
      } else {
        load_checkpoint(alone, open_checkpoint(alone, folder, Files::at_load), std::span(&part, 1));
      }
      std::int64_t wrong = 0;
      for (std::int64_t i = 0; i < part.flat_end; ++i) {
        const std::int64_t expected = (box.row + i / box.cols) * cols + box.col + i % box.cols;
        wrong += read[static_cast<std::size_t>(i)] == static_cast<float>(expected) ? 0 : 1;
      }
      CHECK(wrong == 0);
    }
  }
}

TEST_CASE("bytes that several pieces want come to each of them") {
  const Scratch scratch;
  constexpr std::int64_t size = 3'000'000;
  std::vector<float> values(size);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  const auto part = [&](std::int64_t begin, std::int64_t end, float* data) {
    return Piece{"/model/x", DType::fp32, {size}, {0}, {size}, begin, end, data};
  };
  const std::vector<Piece> saved{part(0, 1'000'001, values.data()), part(1'000'001, size, &values[1'000'001])};
  const fs::path folder = save_checkpoint(alone, scratch.path(), state_at(1), saved, {}).folder;
  const std::vector<std::pair<std::int64_t, std::int64_t>> ranges{
      {0, size}, {0, size}, {5, 700'000}, {999'999, 1'000'002}, {1'000'000, 2'000'000}, {size - 1, size}};
  std::vector<std::vector<float>> memory;
  std::vector<Piece> wanted;
  for (const auto& [begin, end] : ranges) {
    memory.emplace_back(static_cast<std::size_t>(end - begin), -1.0F);
    wanted.push_back(part(begin, end, memory.back().data()));
  }
  load_checkpoint(alone, open_checkpoint(alone, folder, Files::at_load), wanted);
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    CAPTURE(i);
    CHECK(std::equal(memory[i].begin(), memory[i].end(), values.begin() + ranges[i].first));
  }
}

TEST_CASE("files are dealt to who needs them most, and no rank gets much more than its share") {
  using Needs = std::vector<FileNeed>;
  const std::vector<std::int64_t> equal(4, 100);
  // The same layout, in another order of ranks.
  CHECK(deal_files(equal, Needs{{3, 0, 100}, {2, 1, 100}, {1, 2, 100}, {0, 3, 100}}, 4) == std::vector{3, 2, 1, 0});
  // One rank needs everything: it reads one file, the others help.
  CHECK(deal_files(equal, Needs{{2, 0, 100}, {2, 1, 90}, {2, 2, 80}, {2, 3, 70}}, 4) == std::vector{2, 0, 1, 3});
  // Nobody needs anything; more files than ranks, of other sizes; no file.
  CHECK(deal_files(equal, {}, 2) == std::vector{0, 1, 0, 1});
  CHECK(deal_files(std::vector<std::int64_t>{10, 100, 60, 50}, {}, 2) == std::vector{0, 0, 1, 1});
  CHECK(deal_files({}, {}, 3).empty());
  // Fewer ranks than files: each rank's own, as far as they are a share.
  CHECK(deal_files(equal, Needs{{0, 1, 50}, {0, 3, 50}, {1, 0, 50}, {1, 2, 50}}, 2) == std::vector{1, 0, 1, 0});
}
