// SPDX-License-Identifier: Apache-2.0
/// Norms, bounds, and the table that people read.
#include "llmtrain/driver/compare.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace llmtrain {

namespace {

/// Relative bounds of a precision: of what is not zero in exact arithmetic, of noise in parts of all gradients, of losses,
/// and of two weights that were rounded to be stored.
struct Precision {
  double bound = 0;
  double noise = 0;
  double loss = 0;
  double weight = 0;
};

Precision precision_of(const LayoutNumbers& a, const LayoutNumbers& b) {
  // Gradients in E5M2 are rounded by up to an eighth, by other scales where tensor ranks hold other parts.
  if (a.linear == LinearProducts::fp8 || b.linear == LinearProducts::fp8) return {2e-1, 2e-1, 3e-2, 0x1p-8};
  switch (b.compute) {
    case Compute::fp64: return {1e-13, 1e-14, 1e-12, 0};
    case Compute::fp32: return {1e-5, 1e-6, 1e-5, 0};
    case Compute::bf16: return {3e-2, 6e-2, 3e-2, 0x1p-8};
  }
  return {};
}

double norm_of(const std::vector<double>& values) {
  double squares = 0;
  for (const double x : values) squares += x * x;
  return std::sqrt(squares);
}

std::vector<double> difference_of(const std::vector<double>& a, const std::vector<double>& b) {
  LLMTRAIN_CHECK(a.size() == b.size());
  std::vector<double> difference(a.size());
  std::transform(a.begin(), a.end(), b.begin(), difference.begin(), std::minus<>());
  return difference;
}

/// std::max would lose a NaN.
double largest(const std::vector<double>& values) {
  double most = 0;
  for (const double x : values) most = std::abs(x) <= most ? most : std::abs(x);
  return most;
}

class Comparison {
 public:
  Comparison(const LayoutNumbers& a, const LayoutNumbers& b, Agreement agreement)
      : a_(a), b_(b), of_(agreement == Agreement::bits ? Precision{} : precision_of(a, b)) {
    LLMTRAIN_CHECK(a.compute == b.compute && a.gradients.size() == b.gradients.size());
  }

  std::vector<Check> checks() {
    initial_weights();
    gradients();
    for (std::size_t i = 0; i < b_.loss.size(); ++i) {
      const std::string step = fmt::format("step {}", i + 1);
      relative("losses", step, a_.loss[i], b_.loss[i], of_.loss);
      relative("gradient norms", step, a_.gradient_norm[i], b_.gradient_norm[i],
               i == 0 ? of_.bound + of_.noise : 100 * of_.bound);
    }
    parameters();
    relative("evaluation", fmt::format("after step {}", b_.loss.size()), a_.evaluation, b_.evaluation, of_.loss);
    return std::move(checks_);
  }

 private:
  void initial_weights() {
    for (std::size_t i = 0; i < b_.initial.size(); ++i) {
      const bool equal = a_.initial[i] == b_.initial[i];
      checks_.push_back({"initial weights", b_.gradients[i].name, equal ? 0.0 : 1.0, 0.0});
    }
  }

  void gradients() {
    double squares = 0, elements = 0;
    for (const SectionValues& section : b_.gradients) {
      squares += std::pow(norm_of(section.values), 2);
      elements += static_cast<double>(section.values.size());
    }
    for (std::size_t i = 0; i < b_.gradients.size(); ++i) {
      const SectionValues& b = b_.gradients[i];
      LLMTRAIN_CHECK(a_.gradients[i].name == b.name);
      const double share = std::sqrt(squares * static_cast<double>(b.values.size()) / elements);
      checks_.push_back({"gradients of step 1", b.name, norm_of(difference_of(a_.gradients[i].values, b.values)),
                         of_.bound * norm_of(b.values) + of_.noise * share});
    }
  }

  void relative(const char* quantity, std::string name, double a, double b, double e) {
    checks_.push_back({quantity, std::move(name), std::abs(a - b), e * std::abs(b)});
  }

  void parameters() {
    const double lr = std::accumulate(b_.lr.begin(), b_.lr.end(), 0.0);
    const double bound = 2 * lr * std::min(1.0, of_.bound * largest(b_.gradient_norm) / b_.adam_eps);
    for (std::size_t i = 0; i < b_.parameters.size(); ++i) {
      const SectionValues& b = b_.parameters[i];
      const double difference = largest(difference_of(a_.parameters[i].values, b.values));
      checks_.push_back({fmt::format("parameters after step {}", b_.loss.size()), b.name, difference,
                         bound + of_.weight * largest(b.values)});
    }
  }

  const LayoutNumbers& a_;
  const LayoutNumbers& b_;
  const Precision of_;
  std::vector<Check> checks_;
};

/// The difference in parts of the bound; what is exactly equal is none of it.
double part_of_bound(const Check& check) { return check.difference == 0 ? 0 : check.difference / check.bound; }

}  // namespace

std::vector<Check> compare(const LayoutNumbers& a, const LayoutNumbers& b, Agreement agreement) {
  return Comparison(a, b, agreement).checks();
}

const Check* first_failure(const std::vector<Check>& checks) {
  const auto found = std::find_if(checks.begin(), checks.end(), [](const Check& check) { return !check.holds(); });
  return found == checks.end() ? nullptr : &*found;
}

std::string report(const std::vector<Check>& checks) {
  std::vector<std::string> quantities;
  for (const Check& check : checks) {
    if (std::find(quantities.begin(), quantities.end(), check.quantity) == quantities.end()) {
      quantities.push_back(check.quantity);
    }
  }
  std::string text;
  for (const std::string& quantity : quantities) {
    const Check* worst = nullptr;
    int count = 0;
    for (const Check& check : checks) {
      if (check.quantity != quantity) continue;
      ++count;
      if (worst == nullptr || !(part_of_bound(check) <= part_of_bound(*worst))) worst = &check;
    }
    text += fmt::format("  {:<26} {:>4} compared, ", quantity, count);
    text += worst->difference == 0 ? "all equal in every bit\n"
                                   : fmt::format("largest difference {:.1e} of bound {:.1e} ({})\n", worst->difference,
                                                 worst->bound, worst->name);
  }
  if (const Check* failure = first_failure(checks)) {
    text += fmt::format("  first that differs: {}, {}: difference {:.6e}, bound {:.6e}\n", failure->quantity,
                        failure->name, failure->difference, failure->bound);
  }
  return text;
}

}  // namespace llmtrain
