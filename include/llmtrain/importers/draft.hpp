// SPDX-License-Identifier: Apache-2.0
/// A deck made from another system's input: its keys with where each comes from, and what became of everything else.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "llmtrain/config/noted_yaml.hpp"

namespace llmtrain {

/// What became of a key or argument of the other system.
enum class Fate {
  translated,      ///< it is in the deck, or what it asks for is what llmtrain does anyway
  not_applicable,  ///< llmtrain has nothing that it could mean, and the result does not depend on it
  unsupported,     ///< llmtrain lacks it: the deck's training differs
  unknown,         ///< the other system has no such name
  open,            ///< the source does not say what the deck needs
};

/// "translated", "not applicable", ...
std::string_view fate_name(Fate fate);

struct ImportNote {
  Fate fate;
  std::string name;   ///< as the source names it
  std::string shown;  ///< with its value: "--num-layers 80"
  std::string text;   ///< what was done, or why not
};

class DeckDraft {
 public:
  /// `origin` completes "Made by llmtrain import": "from ds_config.json (DeepSpeed)".
  explicit DeckDraft(std::string origin) : origin_(std::move(origin)) {}

  /// Sets a key of the deck, its value as YAML flow text; a later value replaces an earlier one.
  void set(std::string_view key, std::string value, std::string note);
  void set(std::string_view key, std::int64_t value, std::string note);
  void set(std::string_view key, double value, std::string note);
  void set(std::string_view key, bool value, std::string note);
  void note(ImportNote note) { notes_.push_back(std::move(note)); }

  const NotedValues& values() const { return values_; }
  const std::vector<ImportNote>& notes() const { return notes_; }
  std::size_t count(Fate fate) const;

  /// The commented deck: what could not be translated first, then the keys.
  std::string text() const;

 private:
  std::string origin_;
  NotedValues values_;
  std::vector<ImportNote> notes_;
};

/// What an importer is told beside its source.
struct ImportOptions {
  std::int64_t ranks = 0;              ///< of the job; 0 = what the source says
  std::vector<std::string> overrides;  ///< "block.key=value", written into the deck
};

/// Writes the overrides into the draft. Throws Error(usage) for one that names no key.
void apply_overrides(DeckDraft& draft, const std::vector<std::string>& overrides);

/// `text` as the YAML value of `key`: quoted where it is a text, checked where it is a number. Throws Error(bad_input)
/// that names `shown`.
std::string yaml_for(std::string_view key, const std::string& text, const std::string& shown);

/// A number of the source. Throws Error(bad_input) that names `shown`.
std::int64_t whole_number(const std::string& text, const std::string& shown);
double real_number(const std::string& text, const std::string& shown);

}  // namespace llmtrain
