// SPDX-License-Identifier: Apache-2.0
/// Counts and names derived from the parameter table.
#include "llmtrain/params/param_table.hpp"

#include <algorithm>

namespace llmtrain {

ParamTable ParamTable::part(std::span<const int> held) const {
  ParamTable out;
  std::vector<int> number(storages.size(), -1);  // in `out`
  for (const int lease : held) {
    LeaseSpec& kept = out.leases.emplace_back(leases[static_cast<std::size_t>(lease)]);
    for (int& storage : kept.storages) {
      int& to = number[static_cast<std::size_t>(storage)];
      if (to < 0) {
        to = static_cast<int>(out.storages.size());
        out.storages.push_back(storages[static_cast<std::size_t>(storage)]);
      }
      storage = to;
    }
  }
  for (std::size_t lease = 0; lease < leases.size(); ++lease) {
    if (std::find(held.begin(), held.end(), static_cast<int>(lease)) != held.end()) continue;
    for (const int storage : leases[lease].storages) {
      const int to = number[static_cast<std::size_t>(storage)];
      if (to < 0) continue;
      StorageSpec& shared = out.storages[static_cast<std::size_t>(to)];
      // Where the lease elsewhere comes before all of this rank's that hold the weight, another stage is the first.
      const bool first_holder = std::any_of(held.begin(), held.end(), [&](int mine) {
        const std::vector<int>& held_storages = leases[static_cast<std::size_t>(mine)].storages;
        return mine < static_cast<int>(lease) &&
               std::find(held_storages.begin(), held_storages.end(), storage) != held_storages.end();
      });
      shared.tied = first_holder ? TiedCopy::first : TiedCopy::last;
    }
  }
  return out;
}

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
