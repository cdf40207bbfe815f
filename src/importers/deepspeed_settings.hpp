// SPDX-License-Identifier: Apache-2.0
/// The keys of a DeepSpeed file as given, and the steps that translate them.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "deepspeed_tables.hpp"
#include "llmtrain/importers/draft.hpp"

namespace llmtrain::deepspeed {

/// One value of the file: its items if it is a list, else one.
struct Value {
  std::vector<std::string> items;
  std::string shown;  ///< as the file has it
};

/// Row of a key by its full name; nullptr if DeepSpeed has no such key.
const ImportRow* find_row(std::string_view name);

/// Given keys by full name ("zero_optimization.stage"); those whose value is "auto" or null count as absent.
class Settings {
 public:
  /// `sized`: the width of the model is known, and with it the sizes that follow from it where the file says "auto".
  /// Throws Error(bad_input) for what is no JSON object, or names a key twice.
  Settings(std::string_view json, const std::string& name, bool sized, DeckDraft& draft);

  bool given(std::string_view name) const { return values_.contains(name); }
  bool automatic(std::string_view name) const { return automatic_.contains(name); }
  bool any_below(std::string_view prefix) const;  ///< any key of this block is given
  std::string text(std::string_view name, std::string_view fallback) const;
  std::int64_t integer(std::string_view name, std::int64_t fallback) const;
  double real(std::string_view name, double fallback) const;
  bool truth(std::string_view name, bool fallback) const;
  const std::vector<std::string>& items(std::string_view name) const;

  /// "zero_optimization.stage 3", or "DeepSpeed's default (zero_optimization.stage absent)".
  std::string shown(std::string_view name) const;

  /// The first of `names` that is given; the first name if none is.
  std::string_view which(std::initializer_list<std::string_view> names) const;

 private:
  void note(const std::string& name, const Value& value, DeckDraft& draft);
  bool follows(std::string_view name) const;  ///< from other keys, where its value is "auto"

  bool sized_;

  std::map<std::string, Value, std::less<>> values_;
  std::map<std::string, Value, std::less<>> automatic_;
};

struct Translation {
  DeckDraft& draft;
  const Settings& settings;
  std::int64_t ranks = 0;   ///< 0: unknown
  std::int64_t hidden = 0;  ///< model.hidden if the caller gave a model, else 0
  std::int64_t steps = 0;   ///< of the scheduler, 0: not said

  void lacks(std::string shown, std::string text) const {
    draft.note({Fate::unsupported, "", std::move(shown), std::move(text)});
  }
  void remark(std::string shown, std::string text) const {
    draft.note({Fate::translated, "", std::move(shown), std::move(text)});
  }
  void open(std::string shown, std::string text) const {
    draft.note({Fate::open, "", std::move(shown), std::move(text)});
  }
};

void translate_batches(const Translation& t);
void translate_zero(const Translation& t);
void translate_precision(const Translation& t);
void translate_optimizer(const Translation& t);
void translate_scheduler(Translation& t);
void translate_rest(const Translation& t);

}  // namespace llmtrain::deepspeed
