// SPDX-License-Identifier: Apache-2.0
/// Boxes of a stored matrix that is large enough for reads to be split, or to take many rows at once.
#include "damage.hpp"

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
    reader.read(std::span(&part, 1));
    std::int64_t wrong = 0;
    for (std::int64_t i = 0; i < part.flat_end; ++i) {
      const std::int64_t expected = (box.row + i / box.cols) * cols + box.col + i % box.cols;
      wrong += read[static_cast<std::size_t>(i)] == static_cast<float>(expected) ? 0 : 1;
    }
    CAPTURE(box.cols);
    CHECK(wrong == 0);
  }
}
