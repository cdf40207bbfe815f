// SPDX-License-Identifier: Apache-2.0
/// Runs a fuzz target without libFuzzer: with no argument its seeds and many mutations of them, always the same ones;
/// `FILE...` these inputs; `--write-seeds FOLDER` writes the seeds as the corpus that libFuzzer starts from.
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "target.hpp"

namespace {

using namespace llmtrain;

constexpr int mutations = 20'000;

/// False, with the input kept as a file, if the parser misbehaves.
bool passes(const std::string& bytes) {
  try {
    fuzz::try_bytes(bytes);
    return true;
  } catch (const std::exception& error) {
    std::ofstream("failed-input", std::ios::binary) << bytes;
    std::printf("%s; the input is in %s\n", error.what(), std::filesystem::absolute("failed-input").c_str());
    return false;
  }
}

/// A few bytes changed, put in, taken out, or taken from another seed.
std::string mutated(const std::vector<std::string>& seeds, std::mt19937& random) {
  const auto below = [&random](std::size_t n) { return static_cast<std::size_t>(random()) % n; };
  std::string bytes = seeds[below(seeds.size())];
  for (std::size_t edits = 1 + below(4); edits > 0; --edits) {
    const std::size_t at = below(bytes.size() + 1);
    const std::string& other = seeds[below(seeds.size())];
    const std::size_t from = below(other.size() + 1);
    switch (below(4)) {
      case 0: bytes.insert(at, 1, static_cast<char>(below(256))); break;
      case 1: bytes.erase(at, 1 + below(8)); break;
      case 2: bytes.replace(at, below(8), other, from, below(64)); break;
      default:
        if (at < bytes.size()) bytes[at] = static_cast<char>(bytes[at] ^ (1 << below(8)));
    }
  }
  return bytes;
}

int replay() {
  const std::vector<std::string> seeds = fuzz::seeds();
  for (const std::string& seed : seeds) {
    if (!passes(seed)) return 1;
  }
  std::mt19937 random(7);
  for (int i = 0; i < mutations; ++i) {
    if (!passes(mutated(seeds, random))) return 1;
  }
  std::printf("%zu seeds and %d mutations pass\n", seeds.size(), mutations);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  if (arguments.empty()) return replay();
  if (arguments[0] == "--write-seeds" && arguments.size() == 2) {
    std::filesystem::create_directories(arguments[1]);
    int number = 0;
    for (const std::string& seed : fuzz::seeds()) {
      std::ofstream(arguments[1] + "/seed" + std::to_string(number++), std::ios::binary) << seed;
    }
    return 0;
  }
  bool good = true;
  for (const std::string& name : arguments) {
    std::ifstream file(name, std::ios::binary);
    good = passes(std::string(std::istreambuf_iterator<char>(file), {})) && good;
  }
  return good ? 0 : 1;
}
