// SPDX-License-Identifier: Apache-2.0
/// Times Tokenizer::encode on one core; see perf/tokenizer_speed.py, which times the originals beside it.
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "llmtrain/base/error.hpp"
#include "llmtrain/base/files.hpp"
#include "llmtrain/config/read.hpp"
#include "llmtrain/tokenizer/tokenizer.hpp"

using namespace llmtrain;

namespace {

/// Documents that are separated by a NUL.
std::vector<std::string> documents_of(const std::string& text) {
  std::vector<std::string> documents;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\0', at), text.size());
    documents.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return documents;
}

/// Processor time of this thread: what others do on a shared machine does not count.
double seconds() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

/// Seconds of one pass over the documents.
double pass(const Tokenizer& tokenizer, const std::vector<std::string>& documents, std::vector<std::int32_t>& tokens) {
  const double start = seconds();
  tokens.clear();
  for (const std::string& document : documents) tokenizer.encode(document, tokens);
  return seconds() - start;
}

}  // namespace

/// usage: tokenizer_speed TOKENIZER FILE: one line for each line of the input, which asks for so many passes: the seconds of
/// the fastest and the number of tokens.
int main(int argc, char** argv) try {
  require(argc == 3, ExitCode::usage, "usage: tokenizer_speed TOKENIZER FILE");
  const auto tokenizer = make_tokenizer(parse_tokenizer(argv[1]));
  const std::vector<std::string> documents = documents_of(read_file(argv[2]));
  std::vector<std::int32_t> tokens;
  int passes = 0;
  while (std::scanf("%d", &passes) == 1) {
    double fastest = 1e30;
    for (int i = 0; i < passes; ++i) fastest = std::min(fastest, pass(*tokenizer, documents, tokens));
    fmt::print("{:.9f} {}\n", fastest, std::ssize(tokens));
    std::fflush(stdout);
  }
  return 0;
} catch (const Error& error) {
  fmt::print(stderr, "tokenizer_speed: {}\n", error.what());
  return static_cast<int>(error.code());
}
