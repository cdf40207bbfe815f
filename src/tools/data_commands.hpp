// SPDX-License-Identifier: Apache-2.0
/// The actions of `llmtrain data`; src/tools/data.cpp reads the command line and chooses.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace llmtrain {

/// What the command line asks for; an action looks at what belongs to it.
struct DataRequest {
  std::vector<std::string> words;  ///< prefixes, or a deck and its overrides
  std::string output;
  std::string shares = "98,2,0";
  std::string tokenizer;
  std::int64_t vocab = 0;
  std::int64_t document = -1;
  std::int64_t step = 0;
  std::int64_t seq_len = 0;
  std::int64_t samples = 0;
};

// Each returns the exit code and throws Error for what the user has to mend.
int data_info(const DataRequest& request);
int data_dump(const DataRequest& request);
int data_verify(const DataRequest& request);
int data_merge(const DataRequest& request);
int data_split(const DataRequest& request);
int data_at(const DataRequest& request);

}  // namespace llmtrain
