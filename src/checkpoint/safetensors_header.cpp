// SPDX-License-Identifier: Apache-2.0
/// Strict reading of a safetensors header, which may come from anybody: every product, offset and name is checked.
#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include <simdjson.h>

#include "llmtrain/base/error.hpp"
#include "llmtrain/base/json.hpp"
#include "llmtrain/checkpoint/geometry.hpp"
#include "llmtrain/checkpoint/safetensors.hpp"

namespace llmtrain {

namespace {

namespace dom = simdjson::dom;

constexpr std::size_t max_extents = 64;
constexpr std::string_view metadata_member = "__metadata__";

struct ElementType {
  std::string_view name;
  std::int64_t bits;
};

constexpr std::array element_types{
    ElementType{"BOOL", 8},    ElementType{"U8", 8},      ElementType{"I8", 8},          ElementType{"F8_E4M3", 8},
    ElementType{"F8_E5M2", 8}, ElementType{"F8_E8M0", 8}, ElementType{"F8_E4M3FNUZ", 8}, ElementType{"F8_E5M2FNUZ", 8},
    ElementType{"F4", 4},      ElementType{"F6_E2M3", 6}, ElementType{"F6_E3M2", 6},     ElementType{"I16", 16},
    ElementType{"U16", 16},    ElementType{"F16", 16},    ElementType{"BF16", 16},       ElementType{"I32", 32},
    ElementType{"U32", 32},    ElementType{"F32", 32},    ElementType{"I64", 64},        ElementType{"U64", 64},
    ElementType{"F64", 64},    ElementType{"C64", 64},
};

constexpr std::array weight_types{std::pair{DType::fp64, "F64"}, std::pair{DType::fp32, "F32"},
                                  std::pair{DType::bf16, "BF16"}, std::pair{DType::fp16, "F16"}};

template <class... Args>
[[noreturn]] void refuse(std::string_view where, fmt::format_string<Args...> format, Args&&... args) {
  fail(ExitCode::bad_input, "{}: {}; write the file again", where, fmt::format(format, std::forward<Args>(args)...));
}

/// A name for messages: quoted, escaped and short, whatever it is.
std::string shown(std::string_view name) { return json_string(name.substr(0, 200)); }

/// Bytes of so many elements, or -1 if there is no such type, they overflow, or they end inside a byte.
std::int64_t bytes_of(std::string_view type, std::span<const std::int64_t> shape) {
  const auto row = std::ranges::find(element_types, type, &ElementType::name);
  const std::int64_t volume = checked_volume(shape);
  std::int64_t bits = 0;
  if (row == element_types.end() || volume < 0 || __builtin_mul_overflow(volume, row->bits, &bits)) return -1;
  return bits % 8 == 0 ? bits / 8 : -1;
}

std::vector<std::int64_t> read_integers(dom::element value, std::size_t most, std::string_view where,
                                        const std::string& name, std::string_view member) {
  dom::array array;
  if (value.get(array) != simdjson::SUCCESS) refuse(where, "{} of {} is not a list", member, name);
  std::vector<std::int64_t> integers;
  for (const dom::element element : array) {
    std::int64_t integer = 0;
    const bool good = element.get(integer) == simdjson::SUCCESS && integer >= 0 && integers.size() < most;
    if (!good) refuse(where, "{} of {} is not a list of at most {} whole numbers", member, name, most);
    integers.push_back(integer);
  }
  return integers;
}

SafeTensor read_tensor(std::string_view key_of_tensor, dom::element value, std::string_view where) {
  SafeTensor tensor;
  tensor.name = key_of_tensor;
  const std::string name = shown(tensor.name);
  dom::object members;
  if (value.get(members) != simdjson::SUCCESS) refuse(where, "{} is not an object", name);
  int types = 0, shapes = 0, offsets = 0;
  for (const auto& [key, element] : members) {
    if (key == "dtype") {
      std::string_view type;
      if (element.get(type) != simdjson::SUCCESS) refuse(where, "dtype of {} is not a text", name);
      tensor.type = type;
      ++types;
    } else if (key == "shape") {
      tensor.shape = read_integers(element, max_extents, where, name, key);
      ++shapes;
    } else if (key == "data_offsets") {
      const std::vector<std::int64_t> range = read_integers(element, 2, where, name, key);
      if (range.size() != 2) refuse(where, "data_offsets of {} are not two", name);
      tensor.begin = range[0];
      tensor.end = range[1];
      ++offsets;
    }
  }
  if (types != 1 || shapes != 1 || offsets != 1)
    refuse(where, "{} has not dtype, shape and data_offsets once each", name);
  const std::int64_t bytes = bytes_of(tensor.type, tensor.shape);
  if (bytes < 0) refuse(where, "{} has an impossible shape or the unknown dtype {}", name, shown(tensor.type));
  if (tensor.end < tensor.begin || tensor.end - tensor.begin != bytes)
    refuse(where, "{} has {} bytes by its shape, but data_offsets {} to {}", name, bytes, tensor.begin, tensor.end);
  return tensor;
}

std::map<std::string, std::string> read_metadata(dom::element value, std::string_view where) {
  dom::object members;
  if (value.get(members) != simdjson::SUCCESS) refuse(where, "{} is not an object", metadata_member);
  std::map<std::string, std::string> metadata;
  for (const auto& [key, element] : members) {
    std::string_view text;
    const bool good = element.get(text) == simdjson::SUCCESS && metadata.emplace(key, text).second;
    if (!good) refuse(where, "{} is not made of texts, each under a name of its own", metadata_member);
  }
  return metadata;
}

/// The tensors lie back to back, from the header's end to the file's; their offsets become places in the file.
void place(std::vector<SafeTensor>& tensors, std::int64_t data_begin, std::int64_t file_bytes, std::string_view where) {
  std::ranges::sort(tensors, {}, [](const SafeTensor& tensor) { return std::pair(tensor.begin, tensor.end); });
  std::int64_t end = 0;
  for (SafeTensor& tensor : tensors) {
    if (tensor.begin != end)
      refuse(where, "{} begins at byte {} of the data, where {} bytes are before it", shown(tensor.name), tensor.begin,
             end);
    end = tensor.end;
    if (end > file_bytes - data_begin)
      refuse(where, "{} ends at byte {} of the data, which has {}: the file is cut", shown(tensor.name), end,
             file_bytes - data_begin);
    tensor.begin += data_begin;
    tensor.end += data_begin;
  }
  if (end != file_bytes - data_begin)
    refuse(where, "the tensors have {} bytes, the file has {} for them", end, file_bytes - data_begin);
}

}  // namespace

const SafeTensor* SafetensorsHeader::find(std::string_view name) const {
  const auto found = std::ranges::lower_bound(tensors, name, {}, &SafeTensor::name);
  return found != tensors.end() && found->name == name ? &*found : nullptr;
}

std::optional<DType> safetensors_dtype(std::string_view type) {
  for (const auto& [dtype, name] : weight_types) {
    if (name == type) return dtype;
  }
  return std::nullopt;
}

std::string_view safetensors_type(DType dtype) {
  const auto found = std::ranges::find(weight_types, dtype, &std::pair<DType, const char*>::first);
  LLMTRAIN_CHECK(found != weight_types.end());
  return found->second;
}

std::int64_t safetensors_header_bytes(std::string_view first, std::int64_t file_bytes, std::string_view where) {
  std::uint64_t length = 0;
  if (first.size() < sizeof length) refuse(where, "it has {} bytes, less than the length of a header", first.size());
  std::memcpy(&length, first.data(), sizeof length);
  if (length > static_cast<std::uint64_t>(max_safetensors_header))
    refuse(where, "its header says to have {} bytes; at most {} are allowed (is it a safetensors file?)", length,
           max_safetensors_header);
  const auto bytes = static_cast<std::int64_t>(length);
  if (bytes > file_bytes - static_cast<std::int64_t>(sizeof length))
    refuse(where, "its header has {} bytes, but the file only {}: it is cut", bytes, file_bytes);
  return bytes;
}

SafetensorsHeader parse_safetensors_header(std::string_view json, std::int64_t file_bytes, std::string_view where) {
  dom::parser parser;
  dom::object members;
  const bool good = json.starts_with('{') && parser.parse(json.data(), json.size()).get(members) == simdjson::SUCCESS;
  if (!good) refuse(where, "its header is not a JSON object");
  SafetensorsHeader header;
  bool has_metadata = false;
  for (const auto& [key, value] : members) {
    if (key != metadata_member) {
      header.tensors.push_back(read_tensor(key, value, where));
    } else {
      if (std::exchange(has_metadata, true)) refuse(where, "it has {} twice", metadata_member);
      header.metadata = read_metadata(value, where);
    }
  }
  place(header.tensors, static_cast<std::int64_t>(sizeof(std::uint64_t) + json.size()), file_bytes, where);
  std::ranges::sort(header.tensors, {}, &SafeTensor::name);
  const auto twin = std::ranges::adjacent_find(header.tensors, {}, &SafeTensor::name);
  if (twin != header.tensors.end()) refuse(where, "it has {} twice", shown(twin->name));
  return header;
}

}  // namespace llmtrain
