// SPDX-License-Identifier: Apache-2.0
/// Small data sets and folders for the tests of data/ and tools/.
#pragma once

#include <doctest/doctest.h>
#include <stdlib.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "llmtrain/base/error.hpp"
#include "llmtrain/base/files.hpp"
#include "llmtrain/data/indexed_dataset_writer.hpp"

namespace llmtrain {

/// A folder of its own, removed at the end.
class TestFolder {
 public:
  TestFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "llmtrain-test-XXXXXX").string();
    REQUIRE(::mkdtemp(name.data()) != nullptr);
    path_ = name;
  }
  ~TestFolder() { std::filesystem::remove_all(path_); }
  TestFolder(const TestFolder&) = delete;
  TestFolder& operator=(const TestFolder&) = delete;

  std::string operator/(const std::string& name) const { return (path_ / name).string(); }
  /// Names of all files, sorted.
  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(path_))
      names.push_back(entry.path().filename().string());
    std::sort(names.begin(), names.end());
    return names;
  }

 private:
  std::filesystem::path path_;
};

inline void write_file(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

/// A set of one sequence a document with these lengths; the tokens count up over the whole set, modulo `wrap`.
inline void write_set(const std::string& prefix, const std::vector<std::int64_t>& lengths, std::int64_t vocab = 1000,
                      std::int32_t wrap = 1000) {
  IndexedDatasetWriter writer(prefix, vocab);
  std::int32_t next = 0;
  for (const std::int64_t length : lengths) {
    std::vector<std::int32_t> tokens(static_cast<std::size_t>(length));
    for (std::int32_t& token : tokens) token = next++ % wrap;
    writer.add_sequence(tokens);
    writer.end_document();
  }
  writer.finish();
  publish(writer.files());
}

/// The Error that `call` throws, as "code: message"; "no error" if it throws none.
template <class Call>
std::string error_of(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    return fmt::format("{}: {}", static_cast<int>(error.code()), error.what());
  }
  return "no error";
}

/// Checks that `call` fails with this exit code and that its message holds `part`.
#define CHECK_FAILS(call, code, part)                                       \
  do {                                                                      \
    const std::string message = error_of([&] { static_cast<void>(call); }); \
    CAPTURE(message);                                                       \
    CHECK(message.starts_with(#code ": "));                                 \
    CHECK(message.find(part) != std::string::npos);                         \
  } while (false)

}  // namespace llmtrain
