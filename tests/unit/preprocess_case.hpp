// SPDX-License-Identifier: Apache-2.0
/// Runs llmtrain preprocess on lines and reads what it wrote.
#pragma once

#include <string>
#include <vector>

#include "data_files.hpp"
#include "llmtrain/data/indexed_dataset.hpp"
#include "llmtrain/tools/tool.hpp"

namespace llmtrain {

struct PreprocessCase {
  TestFolder folder;
  std::string input = folder / "in.jsonl";

  int run(const std::string& lines, const std::vector<std::string>& options = {}) const {
    write_file(input, lines);
    std::vector<std::string> args = {"--input", input, "--output-prefix", folder / "out", "--tokenizer", "bytes"};
    args.insert(args.end(), options.begin(), options.end());
    return tool_preprocess(MpiComm{}, args);
  }

  /// The sequences of a key, as text; '$' for the end of a document.
  std::vector<std::string> sequences(const std::string& key = "text") const {
    const IndexedDataset set(folder / ("out_" + key + "_document"));
    std::vector<std::string> texts;
    std::int64_t tokens = 0;
    for (std::int64_t i = 0; i < set.sequences(); ++i) {
      std::vector<std::int32_t> ids(static_cast<std::size_t>(set.length(i)));
      set.read(i, 0, ids);
      std::string text;
      for (const std::int32_t id : ids) text.push_back(id == 256 ? '$' : static_cast<char>(id));
      texts.push_back(text);
      tokens += set.length(i);
    }
    CHECK(tokens == set.tokens());
    return texts;
  }
};

using Texts = std::vector<std::string>;

}  // namespace llmtrain
