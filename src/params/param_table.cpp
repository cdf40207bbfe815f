// SPDX-License-Identifier: Apache-2.0
/// Counts and names derived from the parameter table.
#include "llmtrain/params/param_table.hpp"

namespace llmtrain {

std::int64_t ParamTable::parameters() const {
  std::int64_t total = 0;
  for (const StorageSpec& storage : storages) {
    for (const Section& section : storage.sections) total += section.numel();
  }
  return total;
}

std::string dataset_path(std::string_view section_name) {
  std::string path = "/";
  for (const char c : section_name) path += c == '.' ? '/' : c;
  return path;
}

std::uint64_t name_hash(std::string_view section_name) {
  std::uint64_t hash = 14695981039346656037ull;
  for (const char c : section_name) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211ull;
  return hash;
}

}  // namespace llmtrain
