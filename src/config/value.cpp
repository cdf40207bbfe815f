// SPDX-License-Identifier: Apache-2.0
/// Strict reading of values: kinds, numbers, words, ranges.
#include "value.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "llmtrain/config/numbers.hpp"
#include "llmtrain/config/suggest.hpp"

namespace llmtrain {
namespace {

class ValueReader {
 public:
  ValueReader(const Key& key, Findings& findings) : key_(key), findings_(findings) {}

  bool ok() const { return ok_; }

  void read(const Node& node, bool* out) {
    if (!is_plain(node)) return;
    if (node.text == "true" || node.text == "false") {
      *out = node.text == "true";
    } else {
      wrong(node, fmt::format("'{}' is neither true nor false", shown(node)));
    }
  }

  void read(const Node& node, std::int64_t* out) {
    if (!is_plain(node)) return;
    const Parsed<std::int64_t> number = parse_integer(node.text);
    if (number && key_.facts.range.holds(static_cast<long double>(number.value))) {
      *out = number.value;
    } else {
      wrong(node, fmt::format("'{}' {}", shown(node), number ? "is out of range" : number.problem));
    }
  }

  void read(const Node& node, int* out) {
    std::int64_t wide = *out;
    read(node, &wide);
    *out = static_cast<int>(wide);  // ranges of int keys end below 2^31
  }

  void read(const Node& node, double* out) {
    const bool clock = key_.facts.duration && node.is_text() && node.text.find(':') != std::string::npos;
    if (!clock && !is_plain(node)) return;
    const Parsed<double> number = key_.facts.duration ? parse_duration(node.text) : parse_real(node.text);
    if (number && key_.facts.range.holds(static_cast<long double>(number.value))) {
      *out = number.value == 0 ? 0.0 : number.value;  // no negative zero
    } else {
      wrong(node, fmt::format("'{}' {}", shown(node), number ? "is out of range" : number.problem));
    }
  }

  void read(const Node& node, std::string* out) {
    if (!is_word(node)) return;
    if (node.text.empty() && !key_.facts.may_be_empty) {
      wrong(node, "is empty");
    } else if (known_name(node)) {
      *out = node.text;
    }
  }

  void read(const Node& node, const Choice& out) {
    if (!is_word(node) || !known_name(node)) return;
    const auto& names = key_.facts.names;
    out.set(out.at, static_cast<int>(std::find(names.begin(), names.end(), node.text) - names.begin()));
  }

  template <class T>
  void read(const Node& node, std::vector<T>* out) {
    if (!is_list(node)) return;
    std::vector<T> values;
    for (const Node& item : node.items) {
      T value{};
      read_item(item, value);
      values.push_back(std::move(value));
    }
    if (key_.facts.length > 0 && values.size() != key_.facts.length) {
      wrong(node, fmt::format("the list has {} items", values.size()));
    }
    if (ok_) *out = std::move(values);
  }

  void read(const Node& node, TokenizerConfig* out) {
    if (node.is_text()) {
      std::string file;
      read(node, &file);
      if (ok_) *out = TokenizerConfig{.file = file, .pattern = {}, .special = {}, .eod = {}};
      return;
    }
    if (node.kind != Node::Kind::map) return wrong(node, fmt::format("{} stands here", node.kind_name()));
    // A map with `file` describes a whole tokenizer; one without changes the fields that it names.
    const bool whole = std::any_of(node.keys.begin(), node.keys.end(), [](const Node& k) { return k.text == "file"; });
    TokenizerConfig value = whole ? TokenizerConfig{} : *out;
    for (std::size_t i = 0; i < node.items.size(); ++i) read_tokenizer_field(node.keys[i], node.items[i], value);
    if (ok_) *out = std::move(value);
  }

 private:
  static std::string shown(const Node& node) {
    return node.text.size() > 60 ? node.text.substr(0, 60) + "..." : node.text;
  }

  void wrong(const Node& node, const std::string& problem) {
    ok_ = false;
    findings_.add(fmt::format("{}: {}: {}; it takes {}", node.place.text(), key_.path, problem, key_.takes()));
  }

  bool is_plain(const Node& node) {
    if (node.kind == Node::Kind::plain) return true;
    if (node.kind == Node::Kind::quoted) {
      wrong(node, fmt::format("\"{}\" in quotes is text; write it without", shown(node)));
    } else if (node.kind == Node::Kind::null) {
      wrong(node, "has no value");
    } else {
      wrong(node, fmt::format("{} stands here", node.kind_name()));
    }
    return false;
  }

  bool is_word(const Node& node) {
    if (node.kind == Node::Kind::null) {
      wrong(node, key_.facts.may_be_empty ? "has no value (write '' for an empty text)" : "has no value");
      return false;
    }
    if (!node.is_text()) {
      wrong(node, fmt::format("{} stands here", node.kind_name()));
      return false;
    }
    const bool control = std::any_of(node.text.begin(), node.text.end(),
                                     [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; });
    if (control) wrong(node, "the text holds a control character");
    return !control;
  }

  bool is_list(const Node& node) {
    if (node.kind == Node::Kind::list) return true;
    if (node.kind == Node::Kind::null) {
      wrong(node, "has no value (write [] for an empty list)");
    } else if (node.is_text()) {
      wrong(node, fmt::format("'{}' is not a list; write [{}]", shown(node), shown(node)));
    } else {
      wrong(node, fmt::format("{} stands here", node.kind_name()));
    }
    return false;
  }

  bool known_name(const Node& node) {
    const auto& names = key_.facts.names;
    if (names.empty() || std::find(names.begin(), names.end(), node.text) != names.end()) return true;
    const std::vector<std::string> candidates(names.begin(), names.end());
    wrong(node, fmt::format("unknown name '{}'{}", shown(node), did_you_mean(nearest(node.text, candidates))));
    return false;
  }

  template <class T>
  void read_item(const Node& item, T& value) {
    read(item, &value);
  }

  void read_item(const Node& item, std::string& value) {
    const bool before = ok_;
    ok_ = true;
    read(item, &value);
    if (ok_ && !seen_.insert(value).second) wrong(item, fmt::format("'{}' appears twice", value));
    if (ok_ && key_.facts.key_names && find_key(value) == nullptr && !is_group(value)) {
      wrong(item, fmt::format("no block or key '{}'{}", value, did_you_mean(suggest_key("", value))));
    }
    ok_ = ok_ && before;
  }

  void read_item(const Node& item, DataSource& source) {
    if (item.kind != Node::Kind::map) return read(item, &source.prefix);
    bool has_prefix = false;
    for (std::size_t i = 0; i < item.items.size(); ++i) {
      const Node& name = item.keys[i];
      if (name.text == "prefix") {
        has_prefix = true;
        read(item.items[i], &source.prefix);
      } else if (name.text == "weight") {
        read_weight(item.items[i], source.weight);
      } else {
        unknown_field(name, {"prefix", "weight"});
      }
    }
    if (!has_prefix) wrong(item, "an entry has no prefix");
  }

  void read_weight(const Node& node, double& weight) {
    if (!is_plain(node)) return;
    const Parsed<double> number = parse_real(node.text);
    if (number && number.value > 0) {
      weight = number.value;
    } else {
      wrong(node, fmt::format("weight '{}' {}", shown(node), number ? "is not more than 0" : number.problem));
    }
  }

  void read_tokenizer_field(const Node& name, const Node& node, TokenizerConfig& value) {
    if (name.text == "file") {
      read(node, &value.file);
    } else if (name.text == "pattern") {
      read(node, &value.pattern);
    } else if (name.text == "eod") {
      read(node, &value.eod);
    } else if (name.text == "special") {
      if (node.kind != Node::Kind::map) return wrong(node, "special is not a map {TEXT: id}");
      value.special.clear();
      for (std::size_t i = 0; i < node.items.size(); ++i) read_special(node.keys[i], node.items[i], value);
    } else {
      unknown_field(name, {"file", "pattern", "special", "eod"});
    }
  }

  void read_special(const Node& text, const Node& id, TokenizerConfig& value) {
    std::string word;
    read(text, &word);
    if (!is_plain(id)) return;
    const Parsed<std::int64_t> number = parse_integer(id.text);
    if (number && number.value >= 0) {
      value.special.emplace_back(word, number.value);
    } else {
      wrong(id, fmt::format("id '{}' of '{}' {}", shown(id), word, number ? "is negative" : number.problem));
    }
  }

  void unknown_field(const Node& name, const std::vector<std::string>& fields) {
    ok_ = false;
    findings_.add(fmt::format("{}: unknown key '{}' in '{}'{}", name.place.text(), shown(name), key_.path,
                              did_you_mean(nearest(name.text, fields))));
  }

  const Key& key_;
  Findings& findings_;
  bool ok_ = true;
  std::set<std::string> seen_;
};

}  // namespace

bool read_value(const Key& key, const Node& node, Deck& deck, Findings& findings) {
  ValueReader reader(key, findings);
  std::visit([&](auto slot) { reader.read(node, slot); }, key.slot(deck));
  return reader.ok();
}

}  // namespace llmtrain
