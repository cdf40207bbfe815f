// SPDX-License-Identifier: Apache-2.0
/// The bytes of a deck before any YAML: size, encoding, line ends, indentation.
#pragma once

#include <string>
#include <string_view>

#include "llmtrain/config/findings.hpp"

namespace llmtrain {

/// The text without its byte order mark and with LF line ends; empty, with a finding, if it is larger than 1 MiB, not
/// UTF-8, holds control characters, or is indented with tabs (yaml-cpp would take some of these silently).
std::string checked_bytes(std::string_view text, const std::string& source, bool command_line, Findings& findings);

/// Length in bytes of the valid UTF-8 character at `at`, or 0.
std::size_t utf8_length(std::string_view text, std::size_t at);

}  // namespace llmtrain
