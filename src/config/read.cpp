// SPDX-License-Identifier: Apache-2.0
/// Reading decks: family, preset, deck, command line, then the rules.
#include "llmtrain/config/read.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>

#include "llmtrain/base/error.hpp"
#include "llmtrain/config/presets.hpp"
#include "llmtrain/config/suggest.hpp"
#include "tree.hpp"
#include "value.hpp"

namespace llmtrain {
namespace {

constexpr std::size_t read_limit = (std::size_t{1} << 20) + 1;  // one byte beyond the largest deck
constexpr std::size_t longest_key = 200;                        // longer ones are no keys; bounds the depth of dots

class DeckReader {
 public:
  DeckReader(DeckOrigin& origin, Findings& findings) : origin_(origin), findings_(findings) {}

  Deck deck;

  void read_map(const Node& map, const std::string& prefix) {
    for (std::size_t i = 0; i < map.items.size(); ++i) {
      const Node& name = map.keys[i];
      const Node& value = map.items[i];
      const std::string path = prefix.empty() ? name.text : prefix + "." + name.text;
      if (const Key* key = find_key(path)) {
        origin_.places[path] = value.place.text();
        if (read_value(*key, value, deck, findings_)) {
          origin_.broken.erase(path);
        } else {
          origin_.broken.insert(path);
        }
      } else if (is_group(path)) {
        read_group(value, path);
      } else {
        unknown(name, prefix);
      }
    }
  }

 private:
  void read_group(const Node& value, const std::string& path) {
    if (value.kind == Node::Kind::map) return read_map(value, path);
    const bool colon = value.is_text() && value.text.find(':') != std::string::npos;
    findings_.add(fmt::format("{}: {}: {} stands here; it takes a map of keys (see llmtrain help {}){}",
                              value.place.text(), path, value.kind_name(), path,
                              colon ? "; a space is needed after a colon" : ""));
  }

  void unknown(const Node& name, const std::string& prefix) {
    const std::string guess = findings_.full() ? "" : suggest_key(prefix, name.text);  // a long search, for no reader
    // The value was probably meant for that key: rules about it would only report a second time.
    origin_.broken.insert(guess.find('.') != std::string::npos || prefix.empty() ? guess : prefix + "." + guess);
    findings_.add(fmt::format("{}: unknown key '{}' {}{}", name.place.text(), name.text,
                              prefix.empty() ? "at the top level" : "in '" + prefix + "'", did_you_mean(guess)));
  }

  DeckOrigin& origin_;
  Findings& findings_;
};

/// The value of key `name`; nullptr if there is none, or `map` is no map.
Node* child(Node& map, std::string_view name) {
  if (map.kind != Node::Kind::map) return nullptr;
  for (std::size_t i = 0; i < map.items.size(); ++i) {
    if (map.keys[i].text == name) return &map.items[i];
  }
  return nullptr;
}

/// Puts `value` at the dotted `path` below `map`; two values for one key are an error.
void merge(Node& map, std::string_view path, Node value, Findings& findings) {
  const std::size_t dot = path.find('.');
  const std::string_view name = path.substr(0, dot);
  Node* there = child(map, name);
  if (there == nullptr) {
    Node key;
    key.kind = Node::Kind::plain;
    key.text = name;
    key.place = value.place;
    Node inner;
    inner.kind = Node::Kind::map;
    inner.place = value.place;
    if (dot == std::string_view::npos) {
      inner = std::move(value);
    } else {
      merge(inner, path.substr(dot + 1), std::move(value), findings);
    }
    map.keys.push_back(std::move(key));
    map.items.push_back(std::move(inner));
    return;
  }
  const bool deeper = dot != std::string_view::npos;
  if (there->kind == Node::Kind::map && deeper) return merge(*there, path.substr(dot + 1), std::move(value), findings);
  if (there->kind == Node::Kind::map && value.kind == Node::Kind::map) {
    for (std::size_t i = 0; i < value.items.size(); ++i) {
      merge(*there, value.keys[i].text, std::move(value.items[i]), findings);
    }
    return;
  }
  findings.add(fmt::format("{}: '{}' is given twice on the command line", value.place.text(), name));
}

Node override_tree(std::span<const std::string> overrides, Findings& findings) {
  Node root;
  root.kind = Node::Kind::map;
  for (const std::string& argument : overrides) {
    const std::size_t equals = argument.find('=');
    const std::string shown = argument.size() > 100 ? argument.substr(0, 100) + "..." : argument;
    const std::string_view path = std::string_view(argument).substr(0, equals);
    if (path.size() > longest_key) {
      findings.add(fmt::format("command line: {}: unknown key", shown));
      continue;
    }
    Findings own;
    Node value = parse_tree(std::string_view(argument).substr(equals + 1), "command line: " + shown, true, own);
    for (const std::string& line : own.lines()) findings.add(line);
    if (!own.empty()) continue;
    if (!value.place.source) value.place.source = std::make_shared<const std::string>("command line: " + shown);
    merge(root, path, std::move(value), findings);
  }
  return root;
}

/// Reads what `model.KEY` of the command line, or else of the deck, stands for; a name that `find` does not know is judged
/// where the key itself is read.
void apply_named(std::string_view key, const Preset* (*find)(std::string_view), Node& deck, Node& overrides,
                 DeckReader& reader, Findings& findings) {
  for (Node* tree : {&overrides, &deck}) {
    Node* model = child(*tree, "model");
    Node* name = model != nullptr ? child(*model, key) : nullptr;
    if (name == nullptr) continue;
    const Preset* row = name->is_text() ? find(name->text) : nullptr;
    if (row != nullptr) {
      const std::string source = fmt::format("{} ({} {})", name->place.text(), key, row->name);
      reader.read_map(parse_tree(row->model, source, true, findings), "model");
    }
    return;
  }
}

void resolve(Deck& deck) {
  if (deck.model.head_dim == 0) deck.model.head_dim = deck.model.hidden / deck.model.heads;
}

}  // namespace

std::string load_deck_text(const std::string& path) {
  std::error_code ignored;
  require(!std::filesystem::is_directory(path, ignored), ExitCode::missing_input,
          "{}: is a folder, not a deck; name the deck file", path);
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"), &std::fclose);
  require(file != nullptr, ExitCode::missing_input, "{}: cannot open the deck: {}", path, std::strerror(errno));
  std::string text(read_limit, '\0');
  text.resize(std::fread(text.data(), 1, text.size(), file.get()));
  require(std::ferror(file.get()) == 0, ExitCode::io_error, "{}: cannot read the deck: {}", path, std::strerror(errno));
  return text;
}

void require_overrides(std::span<const std::string> arguments) {
  for (const std::string& argument : arguments) {
    const std::size_t equals = argument.find('=');
    require(equals != std::string::npos && equals > 0 && argument[0] != '-', ExitCode::usage,
            "'{}' after the deck is not of the form block.key=value (see llmtrain --help)", argument);
  }
}

TokenizerConfig parse_tokenizer(std::string_view text) {
  Findings findings;
  const Node node = parse_tree(text, "--tokenizer", true, findings);
  Deck deck;
  if (findings.empty()) read_value(*find_key("data.tokenizer"), node, deck, findings);
  findings.throw_if_any();
  return deck.data.tokenizer;
}

Deck parse_deck(std::string_view text, const std::string& name, std::span<const std::string> overrides,
                const DeckChecks& checks) {
  require_overrides(overrides);
  Findings findings;
  DeckOrigin origin{.name = name, .places = {}, .broken = {}};
  Node tree = parse_tree(text, name, false, findings);
  if (tree.kind != Node::Kind::map && findings.empty()) {
    findings.add(
        tree.kind == Node::Kind::null
            ? fmt::format("{}: the deck is empty; llmtrain print-deck shows every key", name)
            : fmt::format("{}: {} stands where blocks (run:, model:, ...) are needed{}", tree.place.text(),
                          tree.kind_name(),
                          tree.text.find(':') != std::string::npos ? "; a space is needed after a colon" : ""));
  }
  const bool readable = tree.kind == Node::Kind::map;
  Node command_line = override_tree(overrides, findings);
  DeckReader reader(origin, findings);
  apply_named("family", &find_family, tree, command_line, reader, findings);
  apply_named("preset", &find_preset, tree, command_line, reader, findings);
  if (readable) reader.read_map(tree, "");
  reader.read_map(command_line, "");
  if (readable) check_deck(reader.deck, checks, origin, findings);
  findings.throw_if_any();
  resolve(reader.deck);
  return reader.deck;
}

Deck read_deck(const std::string& path, std::span<const std::string> overrides, const DeckChecks& checks) {
  require_overrides(overrides);
  return parse_deck(load_deck_text(path), path, overrides, checks);
}

}  // namespace llmtrain
