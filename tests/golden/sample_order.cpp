// SPDX-License-Identifier: Apache-2.0
/// The order of samples against megatron-core's GPTDataset on a grid of data sets, sample lengths, splits, seeds and
/// numbers of samples (sample_order.py, which wrote the file read here).
#include <doctest/doctest.h>

#include <memory>
#include <string>
#include <vector>

#include "data_vectors.hpp"
#include "lcg.hpp"
#include "llmtrain/data/source_dataset.hpp"
#include "llmtrain/data/split.hpp"
#include "unit/data_files.hpp"

using namespace llmtrain;

namespace {

namespace json = simdjson::dom;

std::vector<std::int64_t> lengths_of(std::uint64_t number, const json::element& set) {
  const std::int64_t documents = set["documents"], below = set["below"];
  if (documents == 1) return {below - 1};
  Lcg random(number);
  std::vector<std::int64_t> lengths(static_cast<std::size_t>(documents));
  for (std::int64_t& length : lengths) length = random.next() % below;
  return lengths;
}

NumberDigest digest_of(const CompactIndex& index) {
  NumberDigest digest;
  for (std::int64_t i = 0; i < index.size(); ++i) digest.add(index[i]);
  return digest;
}

/// Rows of the sample index. Megatron's first is (0, 0), also where the first document is empty and so holds no token.
NumberDigest places_of(const SourceDataset& dataset) {
  NumberDigest digest;
  for (std::int64_t j = 0; j <= dataset.samples(); ++j) {
    const StreamPlace place = j == 0 ? StreamPlace{} : dataset.index().place(j * dataset.seq_len());
    digest.add(place.position);
    digest.add(place.offset);
  }
  return digest;
}

void check_tokens(const SourceDataset& dataset, const json::element& part) {
  NumberDigest digest;
  std::vector<std::int32_t> sample(static_cast<std::size_t>(dataset.seq_len() + 1));
  for (std::int64_t i = 0; i < dataset.samples(); ++i) {
    dataset.sample(i, sample);
    for (const std::int32_t token : sample) digest.add(token);
    const auto shown = static_cast<std::ptrdiff_t>(std::min<std::size_t>(sample.size(), 4));
    using Numbers = std::vector<std::int64_t>;
    if (i == 0) CHECK(Numbers(sample.begin(), sample.begin() + shown) == numbers(part["first"]));
    if (i == dataset.samples() - 1) CHECK(Numbers(sample.end() - shown, sample.end()) == numbers(part["last"]));
  }
  CHECK(digest == std::uint64_t{part["tokens"]});
}

}  // namespace

TEST_CASE("samples come in the order of megatron-core's GPTDataset") {
  json::parser parser;
  const json::element golden = parser.load(LLMTRAIN_GOLDEN_FOLDER "/sample_order.json");
  const TestFolder folder;
  std::vector<std::shared_ptr<const IndexedDataset>> sets;
  for (const json::element set : json::array(golden["sets"])) {
    const std::string prefix = folder / ("set" + std::to_string(sets.size()));
    write_set(prefix, lengths_of(sets.size(), set), 65000, static_cast<std::int32_t>(std::int64_t{golden["wrap"]}));
    sets.push_back(std::make_shared<const IndexedDataset>(prefix));
  }
  int together = 0, apart = 0;
  for (const json::element item : json::array(golden["cases"])) {
    CAPTURE(std::string(simdjson::to_string(item)));
    const auto& source = sets.at(std::uint64_t{item["set"]});
    const auto ranges = split_ranges(parse_split(std::string(item["split"])), source->sequences());
    std::size_t number = 0;
    for (const json::element part : json::array(item["parts"])) {
      const SequenceRange range = ranges.at(number++);
      CAPTURE(number);
      const std::int64_t seq_len = item["seq_len"];
      CHECK((count_tokens(*source, range) > seq_len) == !part.is_null());
      if (part.is_null()) continue;
      const SourceDataset dataset(source, range, seq_len, part["asked"], item["seed"]);
      const SamplePlan& plan = dataset.index().plan();
      CHECK(plan.epochs == std::int64_t{part["epochs"]});
      CHECK(plan.samples == std::int64_t{part["samples"]});
      CHECK(digest_of(dataset.index().sequences()) == std::uint64_t{part["documents"]});
      CHECK(places_of(dataset) == std::uint64_t{part["places"]});
      CHECK(digest_of(dataset.index().shuffle()) == std::uint64_t{part["shuffle"]});
      check_tokens(dataset, part);
      if (plan.epochs > 1) ++(plan.separate_last_epoch ? apart : together);
    }
  }
  CHECK(together >= 20);  // the grid has both kinds of last epochs
  CHECK(apart >= 20);
}
