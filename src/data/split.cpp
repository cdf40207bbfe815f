// SPDX-License-Identifier: Apache-2.0
/// Strict reading of split strings, and their ranges.
#include "llmtrain/data/split.hpp"

#include <charconv>
#include <cmath>
#include <string_view>
#include <system_error>

#include "llmtrain/base/error.hpp"

namespace llmtrain {
namespace {

double parse_share(std::string_view field, std::size_t number, const std::string& text) {
  while (field.starts_with(' ')) field.remove_prefix(1);
  while (field.ends_with(' ')) field.remove_suffix(1);
  double value = 0;
  const char* end = field.data() + field.size();
  const auto result = std::from_chars(field.data(), end, value, std::chars_format::fixed);
  require(
      result.ec == std::errc{} && result.ptr == end && std::isfinite(value) && !std::signbit(value),
      ExitCode::configuration,
      "data.split: field {} ('{}') of \"{}\" is not a non-negative decimal number; write shares of train, valid and "
      "test such as \"98,2,0\"",
      number, field, text);
  return value;
}

}  // namespace

Split parse_split(const std::string& text) {
  Split shares{};
  std::size_t count = 0;
  for (std::string_view rest = text;; ++count) {
    require(count < shares.size(), ExitCode::configuration,
            "data.split: \"{}\" has more than three fields; write shares of train, valid and test such as \"98,2,0\"",
            text);
    const std::size_t comma = rest.find(',');
    shares[count] = parse_share(rest.substr(0, comma), count + 1, text);
    if (comma == std::string_view::npos) break;
    rest.remove_prefix(comma + 1);
  }
  const double sum = shares[0] + shares[1] + shares[2];
  require(sum > 0 && std::isfinite(sum), ExitCode::configuration,
          "data.split: the shares of \"{}\" sum to {}; at least one must be positive", text, sum);
  for (double& share : shares) share /= sum;
  return shares;
}

std::array<SequenceRange, 3> split_ranges(const Split& split, std::int64_t sequences) {
  std::array<SequenceRange, 3> ranges;
  double share = 0;
  std::int64_t begin = 0;
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    share += split[i];
    // std::nearbyint rounds half to even, as Python's round().
    const auto end = static_cast<std::int64_t>(std::nearbyint(share * static_cast<double>(sequences)));
    ranges[i] = {begin, std::min(end, sequences)};
    begin = ranges[i].end;
  }
  return ranges;
}

}  // namespace llmtrain
