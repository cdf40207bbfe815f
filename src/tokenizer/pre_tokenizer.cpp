// SPDX-License-Identifier: Apache-2.0
/// Splits by scanner, expression or string, and what becomes of their matches.
#include "pre_tokenizer.hpp"

#include <utility>

namespace llmtrain {
namespace {

/// A stretch of the text and whether the pattern matched it.
struct Stretch {
  Span span;
  bool match;
};

struct FindMatches {
  std::string_view text;
  std::vector<Span>& matches;

  void operator()(Scan scan) const {
    const char* end = text.data() + text.size();
    for (const char* at = text.data(); at != end;) {
      const char* stop = scan(at, end);
      matches.push_back({static_cast<std::size_t>(at - text.data()), static_cast<std::size_t>(stop - text.data())});
      at = stop;
    }
  }
  void operator()(const Regex& regex) const { regex.find_all(text, matches); }
  void operator()(const std::string& string) const {
    for (std::size_t at = text.find(string); at != std::string_view::npos; at = text.find(string, at + string.size()))
      matches.push_back({at, at + string.size()});
  }
};

/// The text as stretches without gaps, matched and not in turn.
std::vector<Stretch> stretches_of(const SplitStep& step, std::string_view text) {
  std::vector<Span> matches;
  std::visit(FindMatches{text, matches}, step.matcher);
  std::vector<Stretch> stretches;
  std::size_t at = 0;
  for (const Span& match : matches) {
    if (match.begin > at) stretches.push_back({{at, match.begin}, step.invert});
    stretches.push_back({match, !step.invert});
    at = match.end;
  }
  if (at < text.size()) stretches.push_back({{at, text.size()}, step.invert});
  return stretches;
}

/// Joins neighbours where `joins(left, right)` says so of two stretches.
template <class Joins>
std::vector<Span> join(const std::vector<Stretch>& stretches, Joins joins) {
  std::vector<Span> pieces;
  for (std::size_t i = 0; i < stretches.size(); ++i) {
    if (i > 0 && joins(stretches[i - 1].match, stretches[i].match)) {
      pieces.back().end = stretches[i].span.end;
    } else {
      pieces.push_back(stretches[i].span);
    }
  }
  return pieces;
}

std::vector<Span> pieces_of(const SplitStep& step, std::string_view text) {
  const std::vector<Stretch> stretches = stretches_of(step, text);
  switch (step.behavior) {
    case SplitBehavior::merged_with_previous:
      return join(stretches, [](bool left, bool right) { return right && !left; });
    case SplitBehavior::merged_with_next: return join(stretches, [](bool left, bool right) { return left && !right; });
    case SplitBehavior::contiguous: return join(stretches, [](bool left, bool right) { return left == right; });
    case SplitBehavior::isolated: return join(stretches, [](bool, bool) { return false; });
    case SplitBehavior::removed: break;
  }
  std::vector<Span> kept;
  for (const Stretch& stretch : stretches) {
    if (!stretch.match) kept.push_back(stretch.span);
  }
  return kept;
}

using PieceCall = std::function<void(std::string_view)>;

void split_from(const std::vector<SplitStep>& steps, std::size_t number, std::string_view text, const PieceCall& call) {
  if (text.empty()) return;
  if (number == steps.size()) return call(text);
  const SplitStep& step = steps[number];
  std::string spaced;
  if (step.add_prefix_space && text[0] != ' ') {
    spaced = " ";
    spaced += text;
    text = spaced;
  }
  for (const Span& piece : pieces_of(step, text))
    split_from(steps, number + 1, text.substr(piece.begin, piece.end - piece.begin), call);
}

}  // namespace

Scan PreTokenizer::single_scan() const {
  if (steps_.size() != 1 || steps_[0].add_prefix_space || steps_[0].behavior != SplitBehavior::isolated) return nullptr;
  const Scan* scan = std::get_if<Scan>(&steps_[0].matcher);
  return scan != nullptr ? *scan : nullptr;
}

void PreTokenizer::split(std::string_view text, const std::function<void(std::string_view)>& piece) const {
  split_from(steps_, 0, text, piece);
}

}  // namespace llmtrain
