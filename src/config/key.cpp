// SPDX-License-Identifier: Apache-2.0
/// The table of all keys and what is said of them in words.
#include "llmtrain/config/key.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>

#include "llmtrain/config/numbers.hpp"
#include "llmtrain/config/suggest.hpp"

namespace llmtrain {
namespace {

struct Index {
  std::map<std::string, const Key*, std::less<>> keys;
  std::map<std::string, std::vector<std::string>, std::less<>> groups;  ///< group -> names of its keys and maps
};

Index make_index() {
  Index index;
  for (const Block& block : deck_blocks()) {
    index.groups[""].push_back(block.name);
    for (const Key& key : block.keys) {
      index.keys[key.path] = &key;
      for (std::size_t dot = key.path.find('.'); dot != std::string::npos; dot = key.path.find('.', dot + 1)) {
        const std::string rest = key.path.substr(dot + 1);
        const std::string name = rest.substr(0, rest.find('.'));
        std::vector<std::string>& names = index.groups[key.path.substr(0, dot)];
        if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
      }
    }
  }
  return index;
}

const Index& index() {
  static const Index table = make_index();
  return table;
}

/// Kind of value in words: "a whole number".
struct KindText {
  const Facts& facts;
  std::string operator()(const std::int64_t*) const { return "a whole number"; }
  std::string operator()(const int*) const { return "a whole number"; }
  std::string operator()(const double*) const { return facts.duration ? "seconds or H:MM:SS" : "a number"; }
  std::string operator()(const bool*) const { return "true or false"; }
  std::string operator()(const std::string*) const { return names_or("a text"); }
  std::string operator()(const Choice&) const { return names_or("a name"); }
  std::string operator()(const std::vector<std::int64_t>*) const { return list("whole numbers"); }
  std::string operator()(const std::vector<double>*) const { return list("numbers"); }
  std::string operator()(const std::vector<std::string>*) const {
    return list(facts.key_names       ? "blocks and keys (BLOCK or BLOCK.KEY)"
                : facts.names.empty() ? "texts"
                                      : fmt::format("names out of {}", fmt::join(facts.names, ", ")));
  }
  std::string operator()(const std::vector<DataSource>*) const { return list("PREFIX or {prefix: P, weight: W}"); }
  std::string operator()(const TokenizerConfig*) const {
    return "bytes, a path, or a map {file: F, pattern: P, special: {TEXT: id}, eod: TEXT}";
  }

  std::string list(std::string_view of) const {
    return facts.length > 0 ? fmt::format("a list of {} {}", facts.length, of) : fmt::format("a list of {}", of);
  }
  std::string names_or(std::string_view kind) const {
    if (facts.names.empty()) return std::string(kind);
    std::vector<std::string_view> shown = facts.names;
    if (shown.front().empty()) shown.front() = "\"\"";
    return shown.size() == 1 ? std::string(shown.front()) : fmt::format("one of {}", fmt::join(shown, ", "));
  }
};

/// The key or map of group `prefix` that `name` names best; "" if none is near.
std::string suggest_in_group(const std::string& prefix, std::string_view name) {
  const auto group = index().groups.find(prefix);
  if (group == index().groups.end()) return {};
  std::map<std::string, std::string> owner;  // every name and other name -> the key's name
  for (const std::string& own : group->second) {
    owner[own] = own;
    const Key* key = find_key(prefix.empty() ? own : prefix + "." + own);
    if (key == nullptr) continue;
    for (const std::string_view other : key->facts.also) owner.emplace(other, own);
  }
  std::vector<std::string> names = group->second;
  if (const auto exact = owner.find(std::string(name)); exact != owner.end()) return exact->second;
  const std::string near = nearest(name, names);
  for (const auto& [other, own] : owner) names.push_back(other);
  const std::string near_any = nearest(name, names);
  if (near_any.empty()) return {};
  return !near.empty() && edit_distance(name, near) <= edit_distance(name, near_any) ? near : owner.at(near_any);
}

}  // namespace

bool Range::holds(long double value) const {
  if (zero && value == 0) return true;
  const bool above = low_open ? value > low : value >= low;
  const bool below = high_open ? value < high : value <= high;
  return above && below;
}

bool Range::bounded() const {
  return low != -std::numeric_limits<double>::infinity() || high != std::numeric_limits<double>::infinity();
}

std::string Range::text() const {
  const auto plain = [](double value) {
    const bool whole = value == static_cast<double>(static_cast<std::int64_t>(value));
    return whole && value < 1e9 ? std::to_string(static_cast<std::int64_t>(value)) : format_real(value);
  };
  const std::string start = zero ? "0, or " : "";
  const bool no_high = high == std::numeric_limits<double>::infinity();
  if (no_high) return start + (low_open ? "more than " + plain(low) : plain(low) + " or more");
  if (low_open) return start + "more than " + plain(low) + ", at most " + plain(high);
  return start + plain(low) + " to " + (high_open ? "less than " : "") + plain(high);
}

std::string_view Key::name() const { return std::string_view(path).substr(path.rfind('.') + 1); }

std::string Key::takes() const {
  Deck deck;
  std::string text = std::visit(KindText{facts}, slot(deck));
  if (facts.range.bounded()) text += ", " + facts.range.text();
  if (!facts.unit.empty() && !facts.duration) text += " (" + std::string(facts.unit) + ")";
  return text;
}

std::string Key::default_text() const {
  const Deck deck;
  return format_value(*this, deck);
}

const std::vector<Block>& deck_blocks() {
  static const std::vector<Block> blocks{run_block(),      model_block(),      parallel_block(),
                                         schedule_block(), precision_block(),  optimizer_block(),
                                         data_block(),     checkpoint_block(), output_block()};
  return blocks;
}

const Key* find_key(std::string_view path) {
  const auto found = index().keys.find(path);
  return found == index().keys.end() ? nullptr : found->second;
}

bool is_group(std::string_view path) { return !path.empty() && index().groups.contains(path); }

std::string suggest_key(std::string_view prefix, std::string_view name) {
  const std::size_t dot = name.find('.');
  if (prefix.empty() && dot != std::string_view::npos) {
    // a full path: put its block right first, then the key in it
    const std::string block = suggest_in_group("", name.substr(0, dot));
    if (!block.empty()) {
      const std::string key = suggest_in_group(block, name.substr(dot + 1));
      if (!key.empty()) return block + "." + key;
    }
    return {};
  }
  if (const std::string near = suggest_in_group(std::string(prefix), name); !near.empty()) return near;
  // The same name in another block: exactly, then as another name.
  for (const bool other_names : {false, true}) {
    for (const Block& block : deck_blocks()) {
      for (const Key& key : block.keys) {
        const auto& also = key.facts.also;
        const bool match = other_names ? std::find(also.begin(), also.end(), name) != also.end() : key.name() == name;
        if (match) return key.path;
      }
    }
  }
  return {};
}

}  // namespace llmtrain
