// SPDX-License-Identifier: Apache-2.0
/// Fuzz target of the safetensors header. An input is a whole file.
#include <algorithm>
#include <cstdint>
#include <string>

#include "llmtrain/base/error.hpp"
#include "llmtrain/checkpoint/safetensors.hpp"
#include "target.hpp"

namespace llmtrain::fuzz {

namespace {

constexpr std::int64_t length_bytes = 8;

/// What the rest of the program relies on: tensors in the order of their names that share the data out exactly.
void check_header(const SafetensorsHeader& header, std::int64_t begin, std::int64_t end) {
  std::int64_t bytes = 0;
  for (std::size_t i = 0; i < header.tensors.size(); ++i) {
    const SafeTensor& tensor = header.tensors[i];
    expect(i == 0 || header.tensors[i - 1].name < tensor.name, "names twice or out of order");
    expect(header.find(tensor.name) == &tensor, "a tensor that is not found");
    expect(begin <= tensor.begin && tensor.begin <= tensor.end && tensor.end <= end, "a place outside the file");
    bytes += tensor.end - tensor.begin;
    const auto dtype = safetensors_dtype(tensor.type);
    std::int64_t volume = 1;
    for (const std::int64_t extent : tensor.shape) volume *= extent;
    expect(!dtype || volume * size_of(*dtype) == tensor.end - tensor.begin, "a shape that is not what it holds");
  }
  expect(bytes == end - begin, "bytes of no tensor or of two");
}

std::string seed(const std::string& header, std::size_t data) {
  const std::uint64_t length = header.size();
  return std::string(reinterpret_cast<const char*>(&length), sizeof length) + header + std::string(data, '\1');
}

}  // namespace

void try_bytes(std::string_view bytes) {
  const auto size = static_cast<std::int64_t>(bytes.size());
  try {
    const std::int64_t length = safetensors_header_bytes(bytes.substr(0, length_bytes), size, "w");
    const std::string_view json = bytes.substr(length_bytes, static_cast<std::size_t>(length));
    check_header(parse_safetensors_header(json, size, "w"), length_bytes + length, size);
  } catch (const Error& error) {
    expect(error.code() == ExitCode::bad_input && std::string(error.what()).starts_with("w: "), error.what());
  }
}

std::vector<std::string> seeds() {
  return {
      seed("{}", 0),
      seed(R"({"__metadata__":{"format":"pt","a":"b"},"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}}   )",
           24),
      seed(R"({"b":{"dtype":"BF16","shape":[4],"data_offsets":[8,16]},"a":{"dtype":"F16","shape":[2,2],"data_offsets":)"
           R"([0,8]},"c":{"dtype":"I64","shape":[],"data_offsets":[16,24]},"d":{"dtype":"BOOL","shape":[0,7],)"
           R"("data_offsets":[24,24]}})",
           24),
      seed(R"({"a":{"dtype":"F64","shape":[1152921504606846976,16],"data_offsets":[0,9223372036854775807]}})", 8),
  };
}

}  // namespace llmtrain::fuzz
