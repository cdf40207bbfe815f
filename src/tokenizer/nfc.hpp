// SPDX-License-Identifier: Apache-2.0
/// Unicode normalization form C, as Hugging Face's tokenizers does it.
#pragma once

#include <string>
#include <string_view>

namespace llmtrain {

/// The text in NFC: itself if it is already, else made in `buffer`. Bytes that are not UTF-8 stay as they are.
std::string_view to_nfc(std::string_view text, std::string& buffer);

}  // namespace llmtrain
