// SPDX-License-Identifier: Apache-2.0
/// The sidecar's JSON, written and read.
#include "llmtrain/data/sidecar.hpp"

#include <simdjson.h>

#include <string_view>

#include "llmtrain/base/error.hpp"

namespace llmtrain {
namespace {

constexpr std::string_view kind = "llmtrain preprocess";

std::string json_string(std::string_view text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      result += {'\\', c};
    } else if (static_cast<unsigned char>(c) < 0x20) {
      result += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    } else {
      result += c;
    }
  }
  return result + '"';
}

}  // namespace

std::string to_json(const Sidecar& sidecar) {
  std::string inputs;
  for (const std::string& input : sidecar.inputs) inputs += (inputs.empty() ? "" : ", ") + json_string(input);
  std::string json =
      fmt::format("{{\n  \"made_by\": {},\n  \"schema\": 1,\n  \"inputs\": [{}],\n", json_string(kind), inputs);
  json +=
      fmt::format("  \"key\": {},\n  \"tokenizer\": {},\n", json_string(sidecar.key), json_string(sidecar.tokenizer));
  json += fmt::format("  \"prompt_key\": {},\n  \"special_tokens\": {},\n", json_string(sidecar.prompt_key),
                      json_string(sidecar.special_tokens));
  const auto number = [&json](const char* name, std::int64_t value, const char* end = ",") {
    json += fmt::format("  \"{}\": {}{}\n", name, value, end);
  };
  number("vocab", sidecar.vocab);
  number("eod", sidecar.eod);
  json += fmt::format("  \"bad_text\": {},\n", json_string(sidecar.bad_text));
  number("replaced_lines", sidecar.replaced_lines);
  number("skipped_lines", sidecar.skipped_lines);
  number("documents", sidecar.documents);
  number("empty_documents", sidecar.empty_documents);
  number("repeated_keys", sidecar.repeated_keys);
  number("sequences", sidecar.sequences);
  number("tokens", sidecar.tokens);
  number("text_bytes", sidecar.text_bytes);
  number("max_token", sidecar.max_token, "");
  return json + "}\n";
}

std::optional<Sidecar> read_sidecar(const std::string& prefix) {
  simdjson::dom::parser parser;
  simdjson::dom::object object;
  if (parser.load(prefix + ".json").get(object) != simdjson::SUCCESS) return std::nullopt;
  try {
    if (std::string_view(object["made_by"]) != kind || std::int64_t(object["schema"]) != 1) return std::nullopt;
    Sidecar sidecar;
    const simdjson::dom::array inputs = object["inputs"];
    for (const simdjson::dom::element input : inputs) sidecar.inputs.emplace_back(std::string_view(input));
    sidecar.key = std::string_view(object["key"]);
    sidecar.tokenizer = std::string_view(object["tokenizer"]);
    sidecar.vocab = object["vocab"].get_int64();
    sidecar.eod = object["eod"].get_int64();
    if (object["bad_text"].error() == simdjson::SUCCESS) {  // sets of older versions lack these
      sidecar.bad_text = std::string_view(object["bad_text"]);
      sidecar.replaced_lines = object["replaced_lines"].get_int64();
      sidecar.skipped_lines = object["skipped_lines"].get_int64();
    }
    if (object["prompt_key"].error() == simdjson::SUCCESS) {
      sidecar.prompt_key = std::string_view(object["prompt_key"]);
      sidecar.special_tokens = std::string_view(object["special_tokens"]);
    }
    sidecar.documents = object["documents"].get_int64();
    sidecar.empty_documents = object["empty_documents"].get_int64();
    sidecar.repeated_keys = object["repeated_keys"].get_int64();
    sidecar.sequences = object["sequences"].get_int64();
    sidecar.tokens = object["tokens"].get_int64();
    sidecar.text_bytes = object["text_bytes"].get_int64();
    sidecar.max_token = object["max_token"].get_int64();
    return sidecar;
  } catch (const simdjson::simdjson_error&) {
    return std::nullopt;
  }
}

}  // namespace llmtrain
