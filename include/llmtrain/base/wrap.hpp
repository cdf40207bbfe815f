// SPDX-License-Identifier: Apache-2.0
/// Text in lines of a bounded width, for comments.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace llmtrain {

/// Lines of at most `width` bytes, broken at spaces; a longer word stands alone.
std::vector<std::string> wrapped(std::string_view text, std::size_t width);

}  // namespace llmtrain
