// SPDX-License-Identifier: Apache-2.0
/// The nearest known name, by the restricted Damerau-Levenshtein distance.
#include "llmtrain/config/suggest.hpp"

#include <algorithm>
#include <vector>

namespace llmtrain {
namespace {

std::string folded(std::string_view name) {
  std::string out(name.substr(0, 64));  // longer names are never near one of ours; keeps the table small
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    if (c == '-') c = '_';
  }
  return out;
}

}  // namespace

int edit_distance(std::string_view a, std::string_view b) {
  const std::string x = folded(a);
  const std::string y = folded(b);
  // rows[i][j]: edits between the first i characters of x and the first j of y
  std::vector<std::vector<int>> rows(x.size() + 1, std::vector<int>(y.size() + 1));
  for (std::size_t i = 0; i <= x.size(); ++i) {
    for (std::size_t j = 0; j <= y.size(); ++j) {
      if (i == 0 || j == 0) {
        rows[i][j] = static_cast<int>(i + j);
        continue;
      }
      const int replace = rows[i - 1][j - 1] + (x[i - 1] == y[j - 1] ? 0 : 1);
      rows[i][j] = std::min({rows[i - 1][j] + 1, rows[i][j - 1] + 1, replace});
      if (i > 1 && j > 1 && x[i - 1] == y[j - 2] && x[i - 2] == y[j - 1]) {
        rows[i][j] = std::min(rows[i][j], rows[i - 2][j - 2] + 1);
      }
    }
  }
  return rows[x.size()][y.size()];
}

std::string nearest(std::string_view name, std::span<const std::string> candidates) {
  std::string best;
  int best_distance = std::max(1, static_cast<int>(name.size() + 1) / 3) + 1;
  for (const std::string& candidate : candidates) {
    const int distance = edit_distance(name, candidate);
    // a name whose every letter would have to change is no suggestion
    const auto shorter = static_cast<int>(std::min(name.size(), candidate.size()));
    if (distance < best_distance && distance < shorter) {
      best = candidate;
      best_distance = distance;
    }
  }
  return best;
}

std::string did_you_mean(std::string_view name) {
  return name.empty() ? std::string() : "; did you mean '" + std::string(name) + "'?";
}

}  // namespace llmtrain
