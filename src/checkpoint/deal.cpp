// SPDX-License-Identifier: Apache-2.0
/// Greedy: the largest needs first, then the largest files.
#include "llmtrain/checkpoint/deal.hpp"

#include <algorithm>
#include <functional>
#include <numeric>
#include <queue>
#include <tuple>
#include <utility>

namespace llmtrain {

std::vector<int> deal_files(std::span<const std::int64_t> sizes, std::span<const FileNeed> needs, int ranks) {
  constexpr int nobody = -1;
  std::vector<int> dealt(sizes.size(), nobody);
  std::vector<std::int64_t> loads(static_cast<std::size_t>(ranks), 0);
  const auto deal = [&](std::size_t file, int rank) {
    dealt[file] = rank;
    loads[static_cast<std::size_t>(rank)] += sizes[file];
  };
  const std::int64_t share = std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0}) / ranks;
  const std::int64_t largest = sizes.empty() ? 0 : std::ranges::max(sizes);
  const std::int64_t most = std::max(largest, share + share / 10);
  std::vector<FileNeed> sorted(needs.begin(), needs.end());
  std::ranges::sort(sorted, [](const FileNeed& a, const FileNeed& b) {
    return std::tuple(-a.bytes, a.file, a.rank) < std::tuple(-b.bytes, b.file, b.rank);
  });
  for (const auto& [rank, file, bytes] : sorted) {
    if (dealt[file] == nobody && loads[static_cast<std::size_t>(rank)] + sizes[file] <= most) deal(file, rank);
  }
  std::vector<std::size_t> rest;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    if (dealt[i] == nobody) rest.push_back(i);
  }
  std::ranges::stable_sort(rest, std::greater{}, [&](std::size_t file) { return sizes[file]; });
  using Load = std::pair<std::int64_t, int>;
  std::priority_queue<Load, std::vector<Load>, std::greater<>> least;
  for (int rank = 0; rank < ranks; ++rank) least.emplace(loads[static_cast<std::size_t>(rank)], rank);
  for (const std::size_t file : rest) {
    const int rank = least.top().second;
    least.pop();
    deal(file, rank);
    least.emplace(loads[static_cast<std::size_t>(rank)], rank);
  }
  return dealt;
}

}  // namespace llmtrain
