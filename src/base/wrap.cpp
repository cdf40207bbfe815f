// SPDX-License-Identifier: Apache-2.0
/// Breaking of text into lines.
#include "llmtrain/base/wrap.hpp"

#include <algorithm>

namespace llmtrain {

std::vector<std::string> wrapped(std::string_view text, std::size_t width) {
  std::vector<std::string> lines(1);
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find(' ', at), text.size());
    const std::string_view word = text.substr(at, end - at);
    if (!lines.back().empty() && lines.back().size() + 1 + word.size() > width) lines.emplace_back();
    if (!lines.back().empty()) lines.back().push_back(' ');
    lines.back() += word;
    at = end + 1;
  }
  return lines;
}

}  // namespace llmtrain
