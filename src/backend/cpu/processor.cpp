// SPDX-License-Identifier: Apache-2.0
/// Reads /proc and /sys for the processor's name, clock and cores, and derives its dense peak.
#include "processor.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <set>
#include <string>
#include <utility>

#include "cpu/gemm.hpp"
#include "llmtrain/base/host.hpp"

namespace llmtrain {

namespace {

/// Value of the first "key : value" line of /proc/cpuinfo; empty if there is none.
std::string cpuinfo(const std::string& key) {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const auto colon = line.find(':');
    if (line.compare(0, key.size(), key) != 0 || colon == std::string::npos) continue;
    const auto begin = line.find_first_not_of(" \t", colon + 1);
    return begin == std::string::npos ? "" : line.substr(begin);
  }
  return "";
}

/// First number in a file of /sys; `otherwise` if it cannot be read.
double number_in(const std::string& path, double otherwise) {
  std::ifstream file(path);
  double value = 0;
  return file >> value ? value : otherwise;
}

struct Isa {
  const char* name;
  int fp32_per_cycle;  ///< FLOP a core a cycle
  int bf16_per_cycle;  ///< the same, where bf16 products are native and faster; else fp32's
};

// FLOP/cycle = FMA units x lanes x 2. Two FMA units are assumed; some AVX-512 processors have one.
Isa instruction_set() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f")) {
    return has_bf16_products() ? Isa{"AVX-512 with bf16", 64, 128} : Isa{"AVX-512", 64, 64};
  }
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return {"AVX2", 32, 32};
  if (__builtin_cpu_supports("avx")) return {"AVX", 16, 16};
  return {"SSE2", 8, 8};
#elif defined(__aarch64__)
  return {"NEON", 16, 16};
#else
  return {"an unknown instruction set", 0, 0};
#endif
}

/// Physical cores that this process may run on: threads that share a core share its arithmetic units.
int allowed_cores() {
  const std::string mask = core_mask();
  std::set<std::pair<int, int>> cores;  // (package, core)
  for (int cpu = 0; cpu < std::ssize(mask); ++cpu) {
    if (mask[static_cast<std::size_t>(cpu)] != '1') continue;
    const std::string topology = fmt::format("/sys/devices/system/cpu/cpu{}/topology/", cpu);
    cores.emplace(static_cast<int>(number_in(topology + "physical_package_id", 0)),
                  static_cast<int>(number_in(topology + "core_id", cpu)));
  }
  return std::max(1, static_cast<int>(cores.size()));
}

struct Clock {
  double hertz;
  const char* source;
};

Clock clock_rate() {
  const double kilohertz = number_in("/sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq", 0);
  if (kilohertz > 0) return {kilohertz * 1e3, "maximum of cpufreq"};
  const std::string megahertz = cpuinfo("cpu MHz");
  if (!megahertz.empty()) return {std::stod(megahertz) * 1e6, "/proc/cpuinfo"};
  return {0, "unknown"};
}

}  // namespace

std::string describe_processor(int threads) {
  const std::string model = cpuinfo("model name");
  const int cores = allowed_cores();
  return fmt::format("{} ({}), {} thread{} on {} core{}", model.empty() ? "CPU" : model, instruction_set().name,
                     threads, threads == 1 ? "" : "s", cores, cores == 1 ? "" : "s");
}

double processor_peak_flops(DType precision, int threads, std::string* formula) {
  const Isa isa = instruction_set();
  const Clock clock = clock_rate();
  const int cores = std::min(threads, allowed_cores());
  double per_cycle = 0;
  if (precision == DType::fp32) per_cycle = isa.fp32_per_cycle;
  if (precision == DType::fp64) per_cycle = isa.fp32_per_cycle / 2.0;
  if (precision == DType::bf16) per_cycle = isa.bf16_per_cycle;
  const double peak = cores * per_cycle * clock.hertz;
  if (formula != nullptr) {
    *formula = peak > 0 ? fmt::format(
                              "{} core{} used x {:.0f} {} FLOP/cycle ({}, two FMA units) x {:.2f} GHz ({}) = {:.1f} "
                              "GFLOP/s",
                              cores, cores == 1 ? "" : "s", per_cycle, name_of(precision), isa.name, clock.hertz / 1e9,
                              clock.source, peak / 1e9)
                        : fmt::format("unknown for {} on {}", name_of(precision), isa.name);
  }
  return peak;
}

}  // namespace llmtrain
