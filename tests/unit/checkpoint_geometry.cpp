// SPDX-License-Identifier: Apache-2.0
/// Boxes, overlaps and coverage of pieces against enumeration of every element.
#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <random>

#include "llmtrain/checkpoint/geometry.hpp"

using namespace llmtrain;

namespace {

/// Flat global index of each element of a piece, by enumeration.
std::vector<std::int64_t> elements_of(const Piece& piece) {
  std::vector<std::int64_t> elements;
  for (std::int64_t flat = piece.flat_begin; flat < piece.flat_end; ++flat) {
    std::int64_t rest = flat;
    std::int64_t stride = 1;
    std::int64_t global = 0;
    for (std::size_t d = piece.slice_shape.size(); d-- > 0;) {
      global += (piece.slice_start[d] + rest % piece.slice_shape[d]) * stride;
      rest /= piece.slice_shape[d];
      stride *= piece.global_shape[d];
    }
    elements.push_back(global);
  }
  return elements;
}

Piece random_piece(std::mt19937& random, const std::vector<std::int64_t>& shape) {
  const auto draw = [&](std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random);
  };
  Piece piece;
  piece.dataset = "/t";
  piece.global_shape = shape;
  for (const std::int64_t extent : shape) {
    piece.slice_start.push_back(draw(0, extent - 1));
    piece.slice_shape.push_back(draw(1, extent - piece.slice_start.back()));
  }
  const std::int64_t volume = checked_volume(piece.slice_shape);
  piece.flat_begin = draw(0, volume);
  piece.flat_end = draw(piece.flat_begin, volume);
  return piece;
}

Piece whole(std::int64_t rows, std::int64_t columns, std::int64_t first, std::int64_t width, std::int64_t begin,
            std::int64_t end) {
  return {"/t", DType::fp32, {rows, columns}, {0, first}, {rows, width}, begin, end, nullptr};
}

}  // namespace

TEST_CASE("boxes of a flat range are its elements in order, at most 2 n - 1 of them") {
  std::mt19937 random(1);
  for (int round = 0; round < 500; ++round) {
    std::vector<std::int64_t> shape;
    for (unsigned i = 0, n = 1 + random() % 4; i < n; ++i) shape.push_back(1 + static_cast<std::int64_t>(random() % 5));
    const Piece piece = random_piece(random, shape);
    REQUIRE(piece_error(piece).empty());
    const std::vector<PieceBox> boxes = boxes_of(piece);
    CHECK(boxes.size() <= 2 * shape.size() - 1);
    std::vector<std::int64_t> found;
    for (const PieceBox& box : boxes) {
      CHECK(box.offset == static_cast<std::int64_t>(found.size()));
      Piece as_piece{"/t", DType::fp32, shape, box.start, box.shape, 0, checked_volume(box.shape), nullptr};
      std::ranges::copy(elements_of(as_piece), std::back_inserter(found));
    }
    CHECK(found == elements_of(piece));
  }
}

TEST_CASE("a range inside a matrix is three boxes") {
  const std::vector<PieceBox> boxes = boxes_of(whole(6, 8, 4, 4, 2, 15));
  REQUIRE(boxes.size() == 3);
  CHECK(boxes[0].start == std::vector<std::int64_t>{0, 6});
  CHECK(boxes[1].start == std::vector<std::int64_t>{1, 4});
  CHECK(boxes[1].shape == std::vector<std::int64_t>{2, 4});
  CHECK(boxes[2].shape == std::vector<std::int64_t>{1, 3});
}

TEST_CASE("overlap copies each common element to its place, once") {
  std::mt19937 random(2);
  for (int round = 0; round < 500; ++round) {
    std::vector<std::int64_t> shape;
    for (unsigned i = 0, n = 1 + random() % 4; i < n; ++i) shape.push_back(1 + static_cast<std::int64_t>(random() % 5));
    const Piece from = random_piece(random, shape);
    const Piece to = random_piece(random, shape);
    const std::vector<std::int64_t> source = elements_of(from);
    const std::vector<std::int64_t> target = elements_of(to);
    std::vector<std::int64_t> copied(target.size(), -1);
    for (const CopyRun& run : overlap(from, to)) {
      CHECK(run.from_stride >= run.length);
      CHECK(run.to_stride >= run.length);
      for (std::int64_t block = 0; block < run.count; ++block) {
        for (std::int64_t i = 0; i < run.length; ++i) {
          auto& place = copied.at(static_cast<std::size_t>(run.to + block * run.to_stride + i));
          CHECK(place == -1);
          place = source.at(static_cast<std::size_t>(run.from + block * run.from_stride + i));
        }
      }
    }
    for (std::size_t i = 0; i < target.size(); ++i) {
      const bool common = std::ranges::find(source, target[i]) != source.end();
      CHECK(copied[i] == (common ? target[i] : -1));
    }
  }
}

TEST_CASE("column slices of a matrix are read as one strided run") {
  const auto runs = overlap(whole(6, 8, 0, 8, 0, 48), whole(6, 8, 4, 4, 0, 24));
  REQUIRE(runs.size() == 1);
  CHECK(runs[0].count == 6);
  CHECK(runs[0].length == 4);
  CHECK(runs[0].from_stride == 8);
}

TEST_CASE("coverage: once and whole, or the error says where") {
  const Piece left = whole(6, 8, 0, 4, 0, 24);
  const Piece head = whole(6, 8, 4, 4, 0, 7);
  const Piece tail = whole(6, 8, 4, 4, 7, 24);
  const Piece late = whole(6, 8, 4, 4, 8, 24);
  const Piece early = whole(6, 8, 4, 4, 6, 24);
  const Piece wide = whole(6, 8, 3, 5, 0, 30);
  const auto error = [](std::vector<const Piece*> pieces) { return coverage_error(pieces); };
  CHECK(error({&tail, &left, &head}).empty());
  CHECK(error({&left, &head, &late}).find("7 to 8") != std::string::npos);
  CHECK(error({&left, &head, &early}).find("in two pieces") != std::string::npos);
  CHECK(error({&left, &head}).find("7 to 24") != std::string::npos);
  CHECK(error({&left}).find("24 of 48") != std::string::npos);
  CHECK(error({&left, &wide}).find("overlap") != std::string::npos);
  CHECK_FALSE(error({}).empty());
}

TEST_CASE("shapes from files: overflow, negative extents and ranges outside are errors") {
  CHECK(checked_volume(std::vector<std::int64_t>{std::int64_t{1} << 32, std::int64_t{1} << 32}) == -1);
  CHECK(checked_volume(std::vector<std::int64_t>{3, -1}) == -1);
  Piece piece = whole(6, 8, 4, 4, 0, 24);
  CHECK(piece_error(piece).empty());
  piece.flat_end = 25;
  CHECK_FALSE(piece_error(piece).empty());
  piece = whole(6, 8, 5, 4, 0, 0);
  CHECK_FALSE(piece_error(piece).empty());
  piece = whole(std::int64_t{1} << 40, std::int64_t{1} << 40, 0, 4, 0, 0);
  CHECK_FALSE(piece_error(piece).empty());
  piece.global_shape.clear();
  CHECK_FALSE(piece_error(piece).empty());
}
