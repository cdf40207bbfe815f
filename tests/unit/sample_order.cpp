// SPDX-License-Identifier: Apache-2.0
/// numpy's shuffle, splits and Megatron's sample order against vectors computed with numpy by an independent program.
#include "llmtrain/data/sample_index.hpp"

#include <doctest/doctest.h>

#include <array>
#include <memory>
#include <set>
#include <span>

#include "data_files.hpp"
#include "llmtrain/data/numpy_random.hpp"
#include "llmtrain/data/source_dataset.hpp"

using namespace llmtrain;

namespace {

using Numbers = std::vector<std::int64_t>;

Numbers shuffled(NumpyRandom& random, std::int64_t size) {
  Numbers values(static_cast<std::size_t>(size));
  std::iota(values.begin(), values.end(), 0);
  random.shuffle(std::span(values));
  return values;
}

std::uint64_t hash(const Numbers& values) {  // FNV-1a over whole numbers
  std::uint64_t h = 14695981039346656037U;
  for (const std::int64_t value : values) h = (h ^ static_cast<std::uint64_t>(value)) * 1099511628211U;
  return h;
}

Numbers list(const CompactIndex& index) {
  Numbers values;
  for (std::int64_t i = 0; i < index.size(); ++i) values.push_back(index[i]);
  return values;
}

/// Rows of the sample index, flattened.
Numbers rows(const SampleIndex& index, std::int64_t seq_len) {
  Numbers values;
  for (std::int64_t j = 0; j <= index.samples(); ++j) {
    const StreamPlace place = index.place(j * seq_len);
    values.push_back(place.position);
    values.push_back(place.offset);
  }
  return values;
}

}  // namespace

TEST_CASE("the generator gives numpy's outputs") {
  NumpyRandom random(1234);
  Numbers outputs;
  for (int i = 0; i < 700; ++i) outputs.push_back(random.next());
  CHECK(outputs[0] == 822569775);
  CHECK(outputs[1] == 2137449171);
  CHECK(outputs[2] == 2671936806);
  CHECK(outputs[623] == 1664263489);
  CHECK(outputs[624] == 303637765);
  CHECK(outputs[699] == 3323420446);
}

TEST_CASE("the shuffle gives numpy's permutations") {
  NumpyRandom random(1234);
  CHECK(shuffled(random, 10) == Numbers{7, 2, 9, 1, 0, 8, 4, 5, 6, 3});
  CHECK(shuffled(random, 10) == Numbers{7, 3, 5, 1, 4, 8, 0, 2, 6, 9});
  NumpyRandom other(42);
  CHECK(shuffled(other, 8) == Numbers{1, 5, 0, 7, 2, 4, 3, 6});
  NumpyRandom long_one(5);
  CHECK(hash(shuffled(long_one, 1000)) == 1390700699596411031U);
}

TEST_CASE("an interval above 32 bits draws the high word first, and [0, 0] draws nothing") {
  NumpyRandom random(1234);
  const std::uint64_t largest = (std::uint64_t{5} << 32) + 7;
  CHECK(random.interval(0) == 0);
  CHECK(random.interval(largest) == 19808869748U);
  CHECK(random.interval(largest) == 3312965625U);
  CHECK(random.interval(largest) == 9442566174U);
  CHECK(random.interval(largest) == 16386000030U);
}

TEST_CASE("several epochs with a last one of its own") {
  const TestFolder folder;
  write_set(folder / "a", {5, 3, 9, 4});
  const IndexedDataset data(folder / "a");
  const SampleIndex index(data, {0, 4}, 4, 12, 1234);
  CHECK(index.plan().epochs == 3);
  CHECK(index.plan().separate_last_epoch);
  CHECK(list(index.sequences()) == Numbers{2, 1, 2, 0, 0, 1, 3, 3, 0, 2, 1, 3});
  CHECK(rows(index, 4) ==
        Numbers{0, 0, 0, 4, 0, 8, 2, 0, 2, 4, 2, 8, 3, 3, 4, 2, 5, 1, 6, 2, 7, 2, 8, 2, 9, 1, 9, 5, 10, 0, 11, 1});
  CHECK(list(index.shuffle()) == Numbers{7, 3, 5, 1, 4, 8, 0, 2, 6, 9, 14, 11, 13, 10, 12});
}

TEST_CASE("one epoch") {
  const TestFolder folder;
  write_set(folder / "a", {5, 3, 9, 4});
  const IndexedDataset data(folder / "a");
  const SampleIndex index(data, {0, 4}, 4, 5, 1234);
  CHECK(index.plan().epochs == 1);
  CHECK(list(index.sequences()) == Numbers{0, 1, 2, 3});
  CHECK(rows(index, 4) == Numbers{0, 0, 0, 4, 2, 0, 2, 4, 2, 8, 3, 3});
  CHECK(list(index.shuffle()) == Numbers{2, 1, 3, 0, 4});
}

TEST_CASE("a range of 250 sequences, some empty, over four epochs and over one") {
  NumpyRandom random(7);
  Numbers lengths(300);
  for (std::int64_t& length : lengths) length = static_cast<std::int64_t>(random.interval(39));
  REQUIRE(hash(lengths) == 18299707735526138479U);
  const TestFolder folder;
  write_set(folder / "a", lengths);
  const IndexedDataset data(folder / "a");

  const SampleIndex four(data, {30, 280}, 16, 1000, 99);
  CHECK(four.plan().epochs == 4);
  CHECK(four.samples() == 1214);
  CHECK(hash(list(four.sequences())) == 6345673353214668821U);
  CHECK(hash(rows(four, 16)) == 6573949154466075712U);
  CHECK(hash(list(four.shuffle())) == 3132689195242795780U);

  const SampleIndex one(data, {30, 280}, 16, 300, 99);
  CHECK(one.plan().epochs == 1);
  CHECK(one.samples() == 303);
  CHECK(hash(list(one.sequences())) == 9081853044588067664U);
  CHECK(hash(rows(one, 16)) == 14790424794518788828U);
  CHECK(hash(list(one.shuffle())) == 15631183514174296458U);
}

TEST_CASE("a sample is the stream's tokens, and neighbours share exactly one (B34)") {
  const TestFolder folder;
  write_set(folder / "a", {5, 3, 0, 9, 4});
  const auto source = std::make_shared<const IndexedDataset>(folder / "a");
  const SourceDataset dataset(source, {0, 5}, 4, 5, 3);
  // Stream order is that of the document index; tokens count up over the set.
  std::vector<std::int32_t> stream;
  for (std::int64_t i = 0; i < dataset.index().sequences().size(); ++i) {
    const std::int64_t sequence = dataset.index().sequences()[i];
    std::vector<std::int32_t> tokens(static_cast<std::size_t>(source->length(sequence)));
    if (!tokens.empty()) source->read(sequence, 0, tokens);
    stream.insert(stream.end(), tokens.begin(), tokens.end());
  }
  REQUIRE(stream.size() == 21);
  for (std::int64_t i = 0; i < dataset.samples(); ++i) {
    std::vector<std::int32_t> sample(5);
    dataset.sample(i, sample);
    const auto first = stream.begin() + dataset.index().shuffle()[i] * 4;
    CHECK(sample == std::vector<std::int32_t>(first, first + 5));
  }
}

TEST_CASE("one document is enough for any number of samples (B38)") {
  const TestFolder folder;
  write_set(folder / "one", {23});
  const SourceDataset dataset(std::make_shared<const IndexedDataset>(folder / "one"), {0, 1}, 5, 1000, 3);
  // n passes of 23 tokens give (23 n - 1) / 5 samples: 217 give 997, 218 give 1002.
  CHECK(dataset.index().plan().epochs == 218);
  CHECK(dataset.samples() == 1002);
  std::vector<std::int32_t> sample(6);
  std::set<std::int32_t> starts;
  for (std::int64_t i = 0; i < dataset.samples(); ++i) {
    dataset.sample(i, sample);
    for (std::size_t t = 1; t < sample.size(); ++t) REQUIRE(sample[t] == (sample[t - 1] + 1) % 23);
    starts.insert(sample[0]);
  }
  CHECK(starts.size() == 23);  // passes follow each other without a gap, so that samples begin everywhere
}

TEST_CASE("counts beyond 32 bits follow the formula (B30, B31)") {
  // 1000 one-token documents, 2^31 samples of one token each, then more tokens than 2^33 in an epoch.
  const SamplePlan many = plan_samples(1000, 1, std::int64_t{1} << 31);
  CHECK(many.epochs == 2147484);
  CHECK(many.samples == 2147483999);
  CHECK(many.samples_before_last == 2147482999);
  CHECK(many.separate_last_epoch);
  const std::int64_t epoch = (std::int64_t{1} << 33) + 5;
  const SamplePlan large = plan_samples(epoch, 4096, 3 * (epoch / 4096));
  CHECK(large.epochs == 3);
  CHECK(large.samples == (3 * epoch - 1) / 4096);
  CHECK(large.samples_before_last == (2 * epoch - 1) / 4096);
  CHECK_FALSE(large.separate_last_epoch);
  CHECK_FAILS(plan_samples(10, std::int64_t{1} << 40, std::int64_t{1} << 40), 78, "data.samples");
  // More sequences than 2^32: shares of them, and their numbers in an index.
  const std::int64_t sequences = std::int64_t{5} << 32;
  const auto shares = split_ranges(parse_split("50,30,20"), sequences);
  CHECK(shares[0].end == sequences / 2);
  CHECK(shares[2].end == sequences);
  CHECK(CompactIndex::entry_bytes(shares[2].end) == 8);
}

TEST_CASE("fewest epochs: one token decides") {
  // 12 samples of 4 need 49 tokens.
  CHECK(plan_samples(49, 4, 12).epochs == 1);
  CHECK(plan_samples(48, 4, 12).epochs == 2);
  CHECK(plan_samples(5, 4, 1000).samples >= 1000);
  CHECK(plan_samples(5, 4, 0).epochs == 1);
}

TEST_CASE("indices of 8-byte entries hold large numbers, of 4-byte entries the largest of theirs") {
  const std::array<std::int64_t, 2> wide{0, std::int64_t{1} << 32};
  CHECK(CompactIndex(std::as_bytes(std::span(wide)).data(), 2, wide[1])[1] == wide[1]);
  const std::array<std::uint32_t, 2> narrow{0, 4294967295U};
  CHECK(CompactIndex(std::as_bytes(std::span(narrow)).data(), 2, narrow[1])[1] == 4294967295);
}

TEST_CASE("splits are cut as Megatron cuts them, ties to even (B25, B27)") {
  const auto bounds = [](const char* split, std::int64_t sequences) {
    Numbers numbers;
    for (const SequenceRange& range : split_ranges(parse_split(split), sequences)) {
      numbers.push_back(range.begin);
      numbers.push_back(range.end);
    }
    return numbers;
  };
  CHECK(bounds("98,2,0", 100) == Numbers{0, 98, 98, 100, 100, 100});
  CHECK(bounds("969, 30, 1", 1000) == Numbers{0, 969, 969, 999, 999, 1000});
  CHECK(bounds("1,1", 5) == Numbers{0, 2, 2, 5, 5, 5});  // 2.5 to 2
  CHECK(bounds("1,1", 7) == Numbers{0, 4, 4, 7, 7, 7});  // 3.5 to 4
  CHECK(bounds("1", 3) == Numbers{0, 3, 3, 3, 3, 3});
  CHECK(bounds("90,9.9,0", 999) == Numbers{0, 900, 900, 999, 999, 999});  // of any sum
  CHECK(bounds("9998,0.002,0.002", 10) == Numbers{0, 10, 10, 10, 10, 10});
}

TEST_CASE("a split that is not three shares is refused with its field (B27)") {
  CHECK_FAILS(parse_split("-1,1,0"), 78, "field 1 ('-1')");
  CHECK_FAILS(parse_split("90,abc5,5"), 78, "field 2 ('abc5')");
  CHECK_FAILS(parse_split("90,1e1,5"), 78, "field 2 ('1e1')");
  CHECK_FAILS(parse_split("90,5,inf"), 78, "field 3 ('inf')");
  CHECK_FAILS(parse_split("90,,5"), 78, "field 2 ('')");
  CHECK_FAILS(parse_split(""), 78, "field 1 ('')");
  CHECK_FAILS(parse_split("0,0,0"), 78, "sum to 0");
  CHECK_FAILS(parse_split("1,1,1,1"), 78, "more than three fields");
}

TEST_CASE("seeds that numpy would refuse are refused") {
  const TestFolder folder;
  write_set(folder / "a", {50});
  const IndexedDataset data(folder / "a");
  CHECK_FAILS(SampleIndex(data, {0, 1}, 4, 5, -1), 78, "data.seed");
  CHECK_FAILS(SampleIndex(data, {0, 1}, 4, 5, std::int64_t{1} << 32), 78, "data.seed");
}
