// SPDX-License-Identifier: Apache-2.0
/// The declaration of a deck key. Reading, help, print-deck, the resolved dump and suggestions all derive from these
/// rows, which src/config/blocks/ lists; type and default are those of the struct member that a row points to.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "llmtrain/config/deck.hpp"

namespace llmtrain {

/// Accepted numbers; `zero` accepts 0 in addition (where it means "none" or "automatic").
struct Range {
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
  bool low_open = false;
  bool high_open = false;
  bool zero = false;

  static constexpr Range at_least(double low) { return {.low = low}; }
  static constexpr Range between(double low, double high) { return {.low = low, .high = high}; }
  static constexpr Range zero_or_between(double low, double high) { return {.low = low, .high = high, .zero = true}; }
  static constexpr Range above_to(double low, double high) { return {.low = low, .high = high, .low_open = true}; }
  static constexpr Range from_below(double low, double high) { return {.low = low, .high = high, .high_open = true}; }

  bool holds(long double value) const;
  bool bounded() const;
  std::string text() const;  ///< "0 to 10", "more than 0, at most 1", "1 or more"
};

/// A reference to an enum member of any type, by enumerator number.
struct Choice {
  void* at = nullptr;
  int (*get)(const void*) = nullptr;
  void (*set)(void*, int) = nullptr;
};

/// Where the value of a key lives in a Deck; the type says how it is read and written.
using ValueRef =
    std::variant<std::int64_t*, int*, double*, bool*, std::string*, Choice, std::vector<std::int64_t>*,
                 std::vector<double>*, std::vector<std::string>*, std::vector<DataSource>*, TokenizerConfig*>;

/// What a row says beside name and member.
struct Facts {
  std::string_view meaning{};             ///< one line, ends with a full stop
  Range range{};                          ///< of the number, or of each number of a list
  std::string_view unit{};                ///< "steps", "sequences", ...; empty: none
  std::vector<std::string_view> names{};  ///< accepted words: of an enum in its order, of a text, of list items
  std::vector<std::string_view> also{};   ///< what other programs call it; used for suggestions only
  std::size_t length = 0;                 ///< of a list; 0: any
  bool may_be_empty = false;              ///< a text that may be ""
  bool duration = false;                  ///< seconds, or H:MM:SS
  bool key_names = false;                 ///< items name blocks or keys of the deck
  bool in_run_id = true;                  ///< false: paths, names, output and thread keys
  bool in_checkpoint = true;              ///< false: left out of the deck that a checkpoint stores
};

/// One key: its full name, its place in a Deck, and what is known of it.
struct Key {
  std::string path;  ///< "optimizer.lr", "model.rope.theta"
  std::function<ValueRef(Deck&)> slot;
  Facts facts;

  std::string_view name() const;  ///< last part of the path
  std::string takes() const;      ///< type and range in words: "a whole number, 0 to 100"
  std::string default_text() const;
};

struct Block {
  std::string name;
  std::string_view meaning;
  std::vector<Key> keys;
};

/// All blocks, in the order of the deck.
const std::vector<Block>& deck_blocks();

/// The key of this full name, or nullptr.
const Key* find_key(std::string_view path);

/// True for a block and for a map inside one ("model.rope").
bool is_group(std::string_view path);

/// The value of a key as YAML flow text that reads back to the same value.
std::string format_value(const Key& key, const Deck& deck);

/// Best guess for an unknown name inside group `prefix` ("" = top level): a name of that group, or else the full path
/// of a key elsewhere; knows the other names of the field. Empty if nothing is near.
std::string suggest_key(std::string_view prefix, std::string_view name);

/// Makes rows of one block: `row(name, member or function from block to member, facts)`.
template <class B>
class Rows {
 public:
  Rows(std::string block, B Deck::*where) : block_(std::move(block)), where_(where) {}

  template <class Member>
  Key operator()(std::string_view name, Member member, Facts facts) const {
    auto slot = [where = where_, member](Deck& deck) -> ValueRef {
      auto& value = std::invoke(member, deck.*where);
      using T = std::remove_reference_t<decltype(value)>;
      if constexpr (std::is_enum_v<T>) {
        return Choice{&value, [](const void* p) { return static_cast<int>(*static_cast<const T*>(p)); },
                      [](void* p, int number) { *static_cast<T*>(p) = static_cast<T>(number); }};
      } else {
        return &value;
      }
    };
    return {block_ + "." + std::string(name), std::move(slot), std::move(facts)};
  }

 private:
  std::string block_;
  B Deck::*where_;
};

// One function a block, in src/config/blocks/NAME.cpp.
Block run_block();
Block model_block();
Block parallel_block();
Block schedule_block();
Block precision_block();
Block optimizer_block();
Block data_block();
Block checkpoint_block();
Block output_block();

}  // namespace llmtrain
