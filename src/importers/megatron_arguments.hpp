// SPDX-License-Identifier: Apache-2.0
/// The arguments of a Megatron-LM command as given, and the steps that translate them.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "llmtrain/importers/draft.hpp"
#include "megatron_tables.hpp"

namespace llmtrain::megatron {

/// Row of an argument by its name without "--"; nullptr if Megatron has no such argument.
const ImportRow* find_row(std::string_view name);

/// Given arguments by real name. Notes in the draft what is unknown, misspelt, repeated, unsupported or not applicable.
class Arguments {
 public:
  Arguments(const std::vector<std::string>& words, DeckDraft& draft);

  bool given(std::string_view name) const { return values_.contains(name); }
  const std::vector<std::string>& words(std::string_view name) const;
  std::string text(std::string_view name, std::string_view fallback) const;
  std::int64_t integer(std::string_view name, std::int64_t fallback) const;
  double real(std::string_view name, double fallback) const;

  /// "--num-layers 80", or "Megatron's default (--num-layers absent)".
  std::string shown(std::string_view name) const;

  /// The first of `names` that is given; the first name if none is.
  std::string_view which(std::initializer_list<std::string_view> names) const;

 private:
  void unknown(std::string_view name, const std::vector<std::string>& words);
  void take(const ImportRow& row, std::vector<std::string> words);
  void note_rows(DeckDraft& draft) const;

  DeckDraft& draft_;
  std::map<std::string, std::vector<std::string>, std::less<>> values_;
};

/// What the steps of a translation share.
struct Translation {
  DeckDraft& draft;
  const Arguments& args;
  std::int64_t ranks = 0;  ///< 0: unknown
  std::int64_t layers = 0;
  std::int64_t global_batch = 0;
  std::int64_t steps = 0;

  void lacks(std::string shown, std::string text) const {
    draft.note({Fate::unsupported, "", std::move(shown), std::move(text)});
  }
  void remark(std::string shown, std::string text) const {
    draft.note({Fate::translated, "", std::move(shown), std::move(text)});
  }
  void open(std::string shown, std::string text) const {
    draft.note({Fate::open, "", std::move(shown), std::move(text)});
  }
  /// Data-parallel ranks, 0 if the number of ranks is unknown.
  std::int64_t data_ranks() const;
  /// A number of samples as steps, rounded down as Megatron does.
  std::int64_t steps_of(std::string_view samples) const { return args.integer(samples, 0) / global_batch; }
};

// In this order.
void translate_model(Translation& t);
void translate_positions(const Translation& t, bool rope);
void translate_layout(const Translation& t);
void translate_batches(Translation& t);
void translate_schedule(const Translation& t);
void translate_optimizer(const Translation& t);
void translate_precision(const Translation& t);
void translate_data(const Translation& t);
void translate_tokenizer(const Translation& t);
void translate_checkpoints(const Translation& t);

}  // namespace llmtrain::megatron
