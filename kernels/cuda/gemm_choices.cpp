// SPDX-License-Identifier: Apache-2.0
/// Reading and writing of the file of choices.
#include "cuda/gemm_choices.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <system_error>

namespace llmtrain {

namespace {

std::filesystem::path cache_folder() {
  if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache != nullptr && *cache != 0) {
    return std::filesystem::path(cache) / "llmtrain";
  }
  if (const char* home = std::getenv("HOME"); home != nullptr && *home != 0) {
    return std::filesystem::path(home) / ".cache" / "llmtrain";
  }
  return {};
}

std::string as_file_name(std::string name) {
  std::replace_if(
      name.begin(), name.end(), [](unsigned char c) { return std::isalnum(c) == 0; }, '-');
  return name;
}

std::string line_of(const GemmKey& key, const cublasLtMatmulAlgo_t& algorithm) {
  std::string line =
      fmt::format("{} {} {} {} {} {} {} {} {} {} {} {} {}", static_cast<int>(key.form), static_cast<int>(key.data),
                  static_cast<int>(key.result), static_cast<int>(key.bias), static_cast<int>(key.epilogue), key.m,
                  key.n, key.k, key.lda, key.ldb, key.ldd, key.ld_gelu, key.alignment);
  for (const std::uint64_t word : algorithm.data) line += fmt::format(" {}", word);
  return line + "\n";
}

bool parse_line(const std::string& line, GemmKey& key, cublasLtMatmulAlgo_t& algorithm) {
  std::istringstream in(line);
  int form = 0, data = 0, result = 0, epilogue = 0;
  in >> form >> data >> result >> key.bias >> epilogue >> key.m >> key.n >> key.k >> key.lda >> key.ldb >> key.ldd >>
      key.ld_gelu >> key.alignment;
  key.epilogue = static_cast<Epilogue>(epilogue);
  key.form = static_cast<GemmForm>(form);
  key.data = static_cast<DType>(data);
  key.result = static_cast<DType>(result);
  for (auto& word : algorithm.data) in >> word;
  return static_cast<bool>(in);
}

}  // namespace

GemmChoices::GemmChoices(const std::string& gpu) {
  const std::filesystem::path folder = cache_folder();
  if (folder.empty()) return;
  path_ = folder / fmt::format("products-{}-cublaslt-{}.txt", as_file_name(gpu), cublasLtGetVersion());
  std::ifstream file(path_);
  for (std::string line; std::getline(file, line);) {
    GemmKey key{};
    cublasLtMatmulAlgo_t algorithm{};
    if (parse_line(line, key, algorithm)) choices_[key] = algorithm;
  }
}

std::optional<cublasLtMatmulAlgo_t> GemmChoices::find(const GemmKey& key) const {
  const auto found = choices_.find(key);
  if (found == choices_.end()) return std::nullopt;
  return found->second;
}

void GemmChoices::add(const GemmKey& key, const cublasLtMatmulAlgo_t& algorithm) {
  choices_[key] = algorithm;
  save();
}

// Written aside and renamed: several ranks and jobs may share the folder, and the last one wins.
void GemmChoices::save() const {
  if (path_.empty()) return;
  std::error_code ignored;
  std::filesystem::create_directories(path_.parent_path(), ignored);
  const std::filesystem::path aside = path_.string() + fmt::format(".{}", getpid());
  {
    std::ofstream file(aside);
    for (const auto& [key, algorithm] : choices_) file << line_of(key, algorithm);
    if (!file) return;
  }
  std::filesystem::rename(aside, path_, ignored);
}

}  // namespace llmtrain
