// SPDX-License-Identifier: Apache-2.0
/// Every field of DeepSpeed's config classes (deepspeed_keys.txt; deepspeed_fields.py compares that list with DeepSpeed's
/// source) is accounted for by the importer as the list says; and the values that follow from several keys.
#include <doctest/doctest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <string>

#include "llmtrain/base/error.hpp"
#include "llmtrain/importers/importers.hpp"

using namespace llmtrain;

namespace {

/// The list as name -> class.
std::map<std::string, std::string> listed() {
  std::ifstream file(std::string(LLMTRAIN_GOLDEN_FOLDER) + "/deepspeed_keys.txt");
  std::map<std::string, std::string> out;
  for (std::string line; std::getline(file, line);) {
    const std::size_t space = line.find(' ');
    if (!line.starts_with('#') && space != std::string::npos) out[line.substr(0, space)] = line.substr(space + 1);
  }
  return out;
}

/// A file that holds the key of this full name, and nothing else.
std::string file_with(const std::string& name, const std::string& value) {
  std::string open, close;
  std::size_t begin = 0;
  for (std::size_t dot = name.find('.'); dot != std::string::npos; dot = name.find('.', begin)) {
    open += "{\"" + name.substr(begin, dot - begin) + "\": ";
    close += "}";
    begin = dot + 1;
  }
  return open + "{\"" + name.substr(begin) + "\": " + value + "}" + close;
}

/// The class of `name` with the first value that its rule accepts and that is not what llmtrain does anyway.
std::string class_of(const std::string& name) {
  for (const char* value : {"true", "3", "\"x\"", "[0.5, 0.5]"}) {
    try {
      const DeckDraft draft = import_deepspeed(file_with(name, value), "test", {2, {}});
      for (const ImportNote& note : draft.notes()) {
        const bool usual = note.text == "this is what llmtrain does";
        if (note.name == name && !usual) return std::string(fate_name(note.fate));
      }
    } catch (const Error& error) {
      if (error.code() != ExitCode::bad_input) throw;  // not a value for this key
    }
  }
  return "no note";
}

std::string value(const DeckDraft& draft, std::string_view key) {
  const auto found = draft.values().find(key);
  return found == draft.values().end() ? "absent" : found->second.value;
}

std::string value(const std::string& json, std::string_view key, std::int64_t ranks = 0) {
  return value(import_deepspeed(json, "test", {ranks, {}}), key);
}

}  // namespace

TEST_CASE("every field of DeepSpeed's config classes is accounted for") {
  const auto names = listed();
  CHECK(names.size() > 350);
  std::size_t rows = 0;
  for (const auto table : deepspeed_rows()) {
    for (const ImportRow& row : table) {
      ++rows;
      CAPTURE(row.name);
      CHECK(names.contains(std::string(row.name)));
    }
  }
  CHECK(rows == names.size());
  for (const auto& [name, expected] : names) {
    CAPTURE(name);
    CHECK(class_of(name.ends_with(".*") ? name.substr(0, name.size() - 1) + "some" : name) == expected);
  }
}

TEST_CASE("any two of DeepSpeed's three batch numbers give the third") {
  const std::string train = "\"train_batch_size\": 64", micro = "\"train_micro_batch_size_per_gpu\": 4",
                    steps = "\"gradient_accumulation_steps\": 2";
  const auto file = [](const std::string& a, const std::string& b) { return "{" + a + ", " + b + "}"; };
  CHECK(value(file(train, micro), "schedule.global_batch") == "64");
  CHECK(value(file(train, steps), "schedule.micro_batch", 8) == "4");
  CHECK(value(file(micro, steps), "schedule.global_batch", 8) == "64");
  CHECK(value("{" + train + "}", "schedule.micro_batch", 8) == "8");
  CHECK(value("{" + micro + "}", "schedule.global_batch", 8) == "32");
  CHECK(value("{" + train + ", \"pipeline\": {\"stages\": 2}}", "schedule.micro_batch", 8) == "16");
  CHECK(value(file(train, micro + ", " + steps), "schedule.micro_batch", 8) == "4");
  CHECK_THROWS_AS(value(file(train, micro + ", " + steps), "schedule.micro_batch", 16), Error);
  CHECK_THROWS_AS(value(file(micro, steps), "schedule.global_batch"), Error);
  CHECK(value("{\"train_batch_size\": \"auto\"}", "schedule.global_batch") == "absent");
}

TEST_CASE("precision, optimizer and schedulers") {
  CHECK(value("{}", "precision.compute") == "fp32");
  CHECK(value("{}", "optimizer.clip") == "1");
  const std::string bf16 = "{\"bf16\": {\"enabled\": true}";
  CHECK(value(bf16 + "}", "precision.gradients") == "bf16");
  CHECK(value(bf16 + ", \"data_types\": {\"grad_accum_dtype\": \"fp32\"}}", "precision.gradients") == "fp32");
  const DeckDraft half = import_deepspeed("{\"fp16\": {\"enabled\": true}}", "test", {});
  CHECK(value(half, "precision.compute") == "bf16");
  CHECK(half.count(Fate::unsupported) >= 1);
  const std::string adam = "{\"optimizer\": {\"type\": \"FusedAdam\", \"params\": {\"lr\": 2e-3}}, \"scheduler\": ";
  CHECK(value(adam + "{}}", "optimizer.betas") == "[0.9, 0.999]");
  CHECK(value(adam + "{}}", "optimizer.weight_decay") == "0");
  CHECK(value(adam + "{}}", "optimizer.schedule") == "constant");
  const std::string decay = adam + "{\"type\": \"WarmupDecayLR\", \"params\": {\"total_num_steps\": 100}}}";
  CHECK(value(decay, "optimizer.lr") == "0.001");  // warmup_max_lr's default, not the optimizer's rate
  CHECK(value(decay, "optimizer.warmup") == "log");
  CHECK(value(decay, "optimizer.warmup_steps") == "1000");
  CHECK(value(decay, "run.steps") == "100");
  CHECK(value(adam + "{\"type\": \"WarmupLR\", \"params\": {}}}", "optimizer.lr") == "0.002");
  const std::string cosine =
      "{\"type\": \"WarmupCosineLR\", \"params\": {\"cos_min_ratio\": 0.5, \"warmup_type\": \"linear\"}}}";
  CHECK(value(adam + cosine, "optimizer.min_lr") == "0.001");
  CHECK(value(adam + cosine, "optimizer.warmup") == "linear");
}
