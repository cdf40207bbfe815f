// SPDX-License-Identifier: Apache-2.0
/// Normal equations of few unknowns, solved by elimination.
#include "fit.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "llmtrain/base/error.hpp"

namespace llmtrain {

namespace {

using Matrix = std::vector<std::vector<double>>;

/// Solves a x = b, both in `rows` [n, n + 1], with row pivoting.
std::vector<double> solve(Matrix rows) {
  const std::size_t n = rows.size();
  for (std::size_t i = 0; i < n; ++i) {
    const auto larger = [i](const auto& a, const auto& b) { return std::abs(a[i]) < std::abs(b[i]); };
    std::swap(rows[i], *std::max_element(rows.begin() + static_cast<std::ptrdiff_t>(i), rows.end(), larger));
    LLMTRAIN_CHECK(rows[i][i] != 0);
    for (std::size_t r = 0; r < n; ++r) {
      if (r == i) continue;
      const double factor = rows[r][i] / rows[i][i];
      for (std::size_t c = i; c <= n; ++c) rows[r][c] -= factor * rows[i][c];
    }
  }
  std::vector<double> x;
  for (std::size_t i = 0; i < n; ++i) x.push_back(rows[i][n] / rows[i][i]);
  return x;
}

std::vector<double> fit(const std::vector<FitRow>& rows, const std::vector<std::size_t>& used) {
  Matrix equations(used.size(), std::vector<double>(used.size() + 1));
  for (const FitRow& row : rows) {
    if (row.value <= 0) continue;
    for (std::size_t i = 0; i < used.size(); ++i) {
      const double f = row.features[used[i]] / row.value;  // relative: the value is 1
      for (std::size_t j = 0; j < used.size(); ++j) equations[i][j] += f * row.features[used[j]] / row.value;
      equations[i].back() += f;
    }
  }
  return solve(std::move(equations));
}

}  // namespace

std::vector<double> fit_relative(const std::vector<FitRow>& rows) {
  LLMTRAIN_CHECK(!rows.empty());
  std::vector<std::size_t> used(rows[0].features.size());
  for (std::size_t i = 0; i < used.size(); ++i) used[i] = i;
  std::vector<double> found = fit(rows, used);
  while (used.size() > 1 && *std::min_element(found.begin() + 1, found.end()) < 0) {
    used.erase(used.begin() + (std::min_element(found.begin() + 1, found.end()) - found.begin()));
    found = fit(rows, used);
  }
  std::vector<double> all(rows[0].features.size());
  for (std::size_t i = 0; i < used.size(); ++i) all[used[i]] = found[i];
  return all;
}

}  // namespace llmtrain
