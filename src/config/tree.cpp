// SPDX-License-Identifier: Apache-2.0
/// YAML to tree: bytes are checked first, then yaml-cpp's events (not its lenient node type) build the nodes.
#include "tree.hpp"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <sstream>
#include <utility>

#include "bytes.hpp"

namespace llmtrain {
namespace {

constexpr std::size_t max_depth = 64;
constexpr int max_nodes = 100'000;

/// Ends the parse early; the finding is already recorded.
struct Stop {};

class Builder : public YAML::EventHandler {
 public:
  Builder(std::string_view text, const std::string& source, bool command_line, Findings& findings)
      : text_(text),
        source_(std::make_shared<const std::string>(source)),
        command_line_(command_line),
        findings_(findings) {
    for (std::size_t at = text.find('\n'); at != std::string_view::npos; at = text.find('\n', at + 1)) {
      line_starts_.push_back(at + 1);
    }
  }

  Node take() { return std::move(root_); }

  Place place(const YAML::Mark& mark) const {
    return command_line_ ? Place{source_, 0, 0} : Place{source_, mark.line + 1, mark.column + 1};
  }

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (++documents_ > 1) stop(mark, "something follows the end of the deck; a deck is one YAML document");
  }
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    check(mark, "?", anchor);
    Node node = make(mark, Node::Kind::null);
    // yaml-cpp places an absent value at whatever follows; its key is where a reader looks.
    if (!open_.empty() && open_.back().keys.size() > open_.back().items.size())
      node.place = open_.back().keys.back().place;
    add(std::move(node));
  }

  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override {
    stop(mark, "aliases (*name) are not allowed in a deck; write the value out");
  }

  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    const bool quoted = tag == "!" && starts_quoted(mark);
    check(mark, quoted ? "?" : tag, anchor);
    Node node = make(mark, quoted ? Node::Kind::quoted : Node::Kind::plain);
    node.text = value;
    add(std::move(node));
  }

  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    check(mark, tag, anchor);
    open(make(mark, Node::Kind::list));
  }
  void OnSequenceEnd() override { close(); }

  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    check(mark, tag, anchor);
    open(make(mark, Node::Kind::map));
  }
  void OnMapEnd() override { close(); }

 private:
  [[noreturn]] void stop(const YAML::Mark& mark, const std::string& message) {
    findings_.add(place(mark).text() + ": " + message);
    throw Stop{};
  }

  /// yaml-cpp gives quoted text and an explicit `!` the same tag; the source tells them apart.
  bool starts_quoted(const YAML::Mark& mark) const {
    if (mark.line < 0 || static_cast<std::size_t>(mark.line) >= line_starts_.size()) return true;
    const std::size_t at = line_starts_[static_cast<std::size_t>(mark.line)] + static_cast<std::size_t>(mark.column);
    return at >= text_.size() || text_[at] != '!';
  }

  void check(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor) {
    if (anchor != 0) stop(mark, "anchors (&name) are not allowed in a deck; write the value out where it is needed");
    if (!tag.empty() && tag != "?") stop(mark, "tags (such as !!int) are not allowed in a deck");
    if (++nodes_ > max_nodes) stop(mark, "the deck has more than 100,000 values; that is no deck");
    if (open_.size() >= max_depth) stop(mark, "nested deeper than 64 levels; that is no deck");
  }

  Node make(const YAML::Mark& mark, Node::Kind kind) const {
    Node node;
    node.kind = kind;
    node.place = place(mark);
    return node;
  }

  void open(Node node) { open_.push_back(std::move(node)); }

  void close() {
    Node node = std::move(open_.back());
    open_.pop_back();
    if (node.kind == Node::Kind::map) drop_bad_keys(node);
    add(std::move(node));
  }

  void add(Node node) {
    if (open_.empty()) {
      root_ = std::move(node);
      return;
    }
    Node& parent = open_.back();
    const bool is_key = parent.kind == Node::Kind::map && parent.keys.size() == parent.items.size();
    (is_key ? parent.keys : parent.items).push_back(std::move(node));
  }

  /// Reports keys that are no words or appear twice, and leaves the others.
  void drop_bad_keys(Node& map) {
    std::map<std::string, Place> seen;
    Node kept;
    kept.kind = map.kind;
    kept.place = map.place;
    for (std::size_t i = 0; i < map.items.size(); ++i) {
      Node& key = map.keys[i];
      if (!key.is_text()) {
        findings_.add(key.place.text() + ": " + std::string(key.kind_name()) + " stands where a key is needed");
        continue;
      }
      const auto [first, is_new] = seen.emplace(key.text, key.place);
      if (!is_new) {
        const std::string where =
            command_line_ ? "" : "; it is first set in line " + std::to_string(first->second.line);
        findings_.add(key.place.text() + ": duplicate key '" + key.text + "'" + where);
        continue;
      }
      kept.keys.push_back(std::move(key));
      kept.items.push_back(std::move(map.items[i]));
    }
    map = std::move(kept);
  }

  std::string_view text_;
  std::shared_ptr<const std::string> source_;
  bool command_line_;
  Findings& findings_;
  std::vector<std::size_t> line_starts_{0};
  Node root_;
  std::vector<Node> open_;
  int nodes_ = 0;
  int documents_ = 0;
};

}  // namespace

std::string Place::text() const {
  if (line == 0) return *source;
  return *source + ":" + std::to_string(line) + ":" + std::to_string(column);
}

std::string_view Node::kind_name() const {
  switch (kind) {
    case Kind::null: return "an empty value";
    case Kind::plain:
    case Kind::quoted: return "a single value";
    case Kind::list: return "a list";
    case Kind::map: return "a map";
  }
  return "?";
}

Node parse_tree(std::string_view text, const std::string& source, bool command_line, Findings& findings) {
  const std::string clean = checked_bytes(text, source, command_line, findings);
  Builder builder(clean, source, command_line, findings);
  if (clean.empty()) return {};
  std::istringstream stream(clean);
  try {
    YAML::Parser parser(stream);
    while (parser.HandleNextDocument(builder)) {
    }
  } catch (const Stop&) {
    return builder.take();
  } catch (const YAML::Exception& error) {
    findings.add(builder.place(error.mark.is_null() ? YAML::Mark() : error.mark).text() +
                 ": not valid YAML: " + error.msg);
  }
  return builder.take();
}

}  // namespace llmtrain
