// SPDX-License-Identifier: Apache-2.0
/// Blends against megatron-core's BlendedDataset, as a deck names them, and files against its IndexedDatasetBuilder
/// (blends.py, which wrote the file read here).
#include <doctest/doctest.h>

#include <string>

#include "data_vectors.hpp"
#include "lcg.hpp"
#include "llmtrain/base/files.hpp"
#include "llmtrain/data/blend.hpp"
#include "llmtrain/data/training_data.hpp"
#include "unit/data_files.hpp"

using namespace llmtrain;

namespace {

namespace json = simdjson::dom;

json::element golden(json::parser& parser) { return parser.load(LLMTRAIN_GOLDEN_FOLDER "/blends.json"); }

/// One sequence a document.
void write_blend_set(const std::string& prefix, std::int64_t number, const json::element& set, std::int64_t wrap) {
  const std::int64_t documents = set["documents"], below = set["below"];
  Lcg random(static_cast<std::uint64_t>(100 + number));
  IndexedDatasetWriter writer(prefix, wrap);
  std::int64_t token = 0;
  for (std::int64_t i = 0; i < documents; ++i) {
    std::vector<std::int32_t> tokens(static_cast<std::size_t>(1 + random.next() % (below - 1)));
    for (std::int32_t& id : tokens) id = static_cast<std::int32_t>(token++ * (2 * number + 1) % wrap);
    writer.add_sequence(tokens);
    writer.end_document();
  }
  writer.finish();
  publish(writer.files());
}

void check_part(const Dataset& dataset, const json::element& part) {
  CHECK(dataset.samples() == std::int64_t{part["samples"]});
  NumberDigest tokens;
  std::vector<std::int32_t> sample(static_cast<std::size_t>(dataset.seq_len() + 1));
  for (std::int64_t i = 0; i < dataset.samples(); ++i) {
    dataset.sample(i, sample);
    for (const std::int32_t token : sample) tokens.add(token);
  }
  CHECK(tokens == std::uint64_t{part["tokens"]});
  const auto* blend = dynamic_cast<const BlendedDataset*>(&dataset);
  REQUIRE((blend != nullptr) == (part["sets"].error() == simdjson::SUCCESS));
  if (blend == nullptr) return;
  NumberDigest sets, picks;
  std::vector<std::int64_t> first;
  for (std::int64_t i = 0; i < dataset.samples(); ++i) {
    const BlendPlace place = blend->place(i);
    sets.add(place.set);
    picks.add(place.sample);
    if (i < 20) first.push_back(place.set);
  }
  CHECK(first == numbers(part["first"]));
  CHECK(sets == std::uint64_t{part["sets"]});
  CHECK(picks == std::uint64_t{part["picks"]});
  std::vector<std::int64_t> sizes;
  for (std::int64_t k = 0; k < blend->sets(); ++k) sizes.push_back(blend->set(k).samples());
  CHECK(sizes == numbers(part["of"]));
}

/// The same ids as blends.py makes.
void write_documents(IndexedDatasetWriter& writer, const json::element& file) {
  const std::int64_t vocab = file["vocab"];
  std::int64_t number = 0;
  for (const json::element document : json::array(file["documents"])) {
    const std::vector<std::int64_t> lengths = numbers(document);
    std::int64_t n = 0;
    for (const std::int64_t length : lengths) n += length;
    const std::int64_t modulus = vocab + number++;
    Lcg random(static_cast<std::uint64_t>(n + modulus));
    for (const std::int64_t length : lengths) {
      std::vector<std::int32_t> tokens(static_cast<std::size_t>(length));
      for (std::int32_t& id : tokens) id = static_cast<std::int32_t>(random.next() % modulus % vocab);
      writer.add_sequence(tokens);
    }
    writer.end_document();
  }
}

void check_files(const std::string& prefix, const json::element& expected) {
  for (const std::string end : {"bin", "idx"}) {
    NumberDigest digest;
    for (const char byte : read_file(prefix + "." + end)) digest.add(static_cast<unsigned char>(byte));
    CHECK(digest == std::uint64_t{expected[end]});
  }
}

}  // namespace

TEST_CASE("blends come in the order of megatron-core's BlendedDataset") {
  json::parser parser;
  const json::element file = golden(parser);
  const TestFolder folder;
  std::int64_t number = 0;
  for (const json::element set : json::array(file["sets"])) {
    write_blend_set(folder / ("set" + std::to_string(number)), number, set, file["wrap"]);
    ++number;
  }
  int cases = 0;
  for (const json::element item : json::array(file["cases"])) {
    CAPTURE(std::string(simdjson::to_string(item)));
    DataConfig data;
    for (const std::int64_t set : numbers(item["sets"])) {
      data.train.push_back({folder / ("set" + std::to_string(set)), 0});
    }
    if (!item["weights"].is_null()) {
      std::size_t i = 0;
      for (const double weight : json::array(item["weights"])) data.train[i++].weight = weight;
    }
    data.split = std::string(item["split"]);
    data.seed = item["seed"];
    data.samples = item["asked"].at(0);
    data.eval_batches = item["asked"].at(1);
    RunConfig run;
    run.steps = 1;
    const TrainingData opened = open_training_data(data, run, item["seq_len"], 1, file["wrap"]);
    CHECK(opened.warnings.empty());
    check_part(*opened.train, item["parts"].at(0));
    REQUIRE(opened.valid.size() == 1);
    check_part(*opened.valid[0].dataset, item["parts"].at(1));
    ++cases;
  }
  CHECK(cases >= 40);
}

TEST_CASE("files are those of megatron-core's IndexedDatasetBuilder, byte for byte") {
  json::parser parser;
  for (const json::element item : json::array(golden(parser)["files"])) {
    CAPTURE(std::string(simdjson::to_string(item)));
    const TestFolder folder;
    IndexedDatasetWriter one(folder / "one", item["vocab"]), merged(folder / "merged", item["vocab"]);
    write_documents(one, item);
    one.finish();
    publish(one.files());
    check_files(folder / "one", item["file"]);

    write_documents(merged, item);
    const IndexedDataset read(folder / "one");
    for (int i = 0; i < 2; ++i) merged.append(read);
    merged.finish();
    publish(merged.files());
    check_files(folder / "merged", item["merged"]);
  }
}
