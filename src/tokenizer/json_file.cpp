// SPDX-License-Identifier: Apache-2.0
/// Hugging Face's tokenizer.json.
#include <set>
#include <stdexcept>

#include "byte_alphabet.hpp"
#include "files.hpp"
#include "json_view.hpp"
#include "llmtrain/base/error.hpp"
#include "llmtrain/tokenizer/scan.hpp"
#include "parts.hpp"

namespace llmtrain {
namespace {

/// For a component of some `type`: the sentence that names it.
[[noreturn]] void refuse_type(const JsonView& component, std::string_view known) {
  component.field("type").refuse(
      fmt::format("'{}' is not supported; it may be {}", component.field("type").string(), known));
}

SplitBehavior behavior_of(const JsonView& view) {
  const std::string_view name = view.string();
  if (name == "Removed") return SplitBehavior::removed;
  if (name == "Isolated") return SplitBehavior::isolated;
  if (name == "MergedWithPrevious") return SplitBehavior::merged_with_previous;
  if (name == "MergedWithNext") return SplitBehavior::merged_with_next;
  if (name == "Contiguous") return SplitBehavior::contiguous;
  view.refuse(fmt::format("'{}' is no behavior of a split", name));
}

const char* scan_all(const char*, const char* end) { return end; }

class PreTokenizerReader {
 public:
  PreTokenizer read(const JsonView& view) {
    if (view.is_null()) view.refuse("there is none; a ByteLevel is needed");
    read_component(view);
    if (!byte_level_) view.refuse("there is no ByteLevel in it; only byte-level tokenizers are supported");
    return {std::move(steps_), std::move(text_)};
  }

 private:
  void read_component(const JsonView& view) {
    const std::string_view type = view.field("type").string();
    if (byte_level_) view.refuse(fmt::format("{} stands behind the ByteLevel; that must be the last", type));
    if (type == "Sequence") {
      view.know_fields({"type", "pretokenizers"});
      const JsonView list = view.field("pretokenizers");
      std::size_t index = 0;
      for (const simdjson::dom::element item : list.array()) read_component(list.item(item, index++));
    } else if (type == "Split") {
      read_split(view);
    } else if (type == "Digits") {
      view.know_fields({"type", "individual_digits"});
      const bool individual = view.field("individual_digits").boolean();
      add({Regex(R"(\p{N})", RegexSyntax::oniguruma), individual ? SplitBehavior::isolated : SplitBehavior::contiguous},
          fmt::format("digits {}", individual));
    } else if (type == "ByteLevel") {
      read_byte_level(view);
    } else {
      refuse_type(view, "Sequence, Split, Digits or ByteLevel");
    }
  }

  void read_split(const JsonView& view) {
    view.know_fields({"type", "pattern", "behavior", "invert"});
    const JsonView pattern = view.field("pattern");
    pattern.know_fields({"Regex", "String"});
    SplitStep step{scan_all, behavior_of(view.field("behavior")), view.field("invert").boolean()};
    std::string_view text;
    if (const auto regex = pattern.find("Regex")) {
      text = regex->string();
      if (const KnownPattern* known = find_pattern_regex(text, true)) {
        step.matcher = known->scan;
      } else {
        try {
          step.matcher = Regex(text, RegexSyntax::oniguruma);
        } catch (const std::invalid_argument& error) {
          regex->refuse(fmt::format("the expression cannot be used: {}", error.what()));
        }
      }
    } else {
      text = pattern.field("String").string();
      if (text.empty()) pattern.refuse("an empty string matches everywhere");
      step.matcher = std::string(text);
    }
    const std::string described = fmt::format("split {} {} {}", text, static_cast<int>(step.behavior), step.invert);
    add(std::move(step), described);
  }

  void read_byte_level(const JsonView& view) {
    view.know_fields({"type", "add_prefix_space", "trim_offsets", "use_regex"});
    byte_level_ = true;
    const bool prefix = view.field("add_prefix_space").boolean();
    const bool regex = view.boolean_or("use_regex", true);
    if (!prefix && !regex && !steps_.empty()) return;
    add({regex ? find_pattern_name("gpt2")->scan : scan_all, SplitBehavior::isolated, false, prefix},
        fmt::format("bytes {} {}", prefix, regex));
  }

  void add(SplitStep step, const std::string& described) {
    steps_.push_back(std::move(step));
    text_ += described + "\n";
  }

  std::vector<SplitStep> steps_;
  std::string text_;
  bool byte_level_ = false;
};

/// Whether the text is brought to NFC.
bool reads_nfc(const JsonView& view) {
  if (view.is_null()) return false;
  const std::string_view type = view.field("type").string();
  if (type == "NFC") {
    view.know_fields({"type"});
    return true;
  }
  if (type != "Sequence") refuse_type(view, "NFC, or null for none");
  view.know_fields({"type", "normalizers"});
  const JsonView list = view.field("normalizers");
  bool nfc = false;
  std::size_t index = 0;
  for (const simdjson::dom::element item : list.array()) nfc = reads_nfc(list.item(item, index++)) || nfc;
  return nfc;
}

/// Post-processors only add tokens around a text, which is not done to data, or trim offsets; decoders turn characters
/// back into bytes. Others than these would mean another kind of tokenizer.
void check_ends(const JsonView& root) {
  if (root.has("post_processor")) {
    const JsonView view = root.field("post_processor");
    const std::string_view type = view.field("type").string();
    if (type != "ByteLevel" && type != "TemplateProcessing" && type != "Sequence" && type != "RobertaProcessing" &&
        type != "BertProcessing")
      refuse_type(view, "ByteLevel, TemplateProcessing, Sequence, RobertaProcessing or BertProcessing");
  }
  if (root.has("decoder")) {
    const JsonView view = root.field("decoder");
    if (view.field("type").string() != "ByteLevel") refuse_type(view, "ByteLevel");
  }
  for (const char* name : {"truncation", "padding"}) {
    if (root.has(name)) root.field(name).refuse("would change the ids of documents; set it to null");
  }
}

Merge read_merge(const JsonView& view, const Vocabulary& vocabulary, std::size_t rank) {
  if (view.is_string()) {
    const std::string_view text = view.string();
    const std::size_t space = text.find(' ');
    if (space == std::string_view::npos || text.find(' ', space + 1) != std::string_view::npos)
      view.refuse(fmt::format("'{}' is not two tokens with a space between", text));
    return make_merge(vocabulary, text.substr(0, space), text.substr(space + 1), rank, view.place());
  }
  const simdjson::dom::array pair = view.array();
  if (pair.size() != 2) view.refuse("a merge is two tokens");
  return make_merge(vocabulary, view.item(pair.at(0), 0).string(), view.item(pair.at(1), 1).string(), rank,
                    view.place());
}

OddTokens read_model(const JsonView& model, BpeParts& parts) {
  if (const auto type = model.find("type"); type.has_value() && type->string() != "BPE") refuse_type(model, "BPE");
  model.know_fields({"type", "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk",
                     "byte_fallback", "ignore_merges", "vocab", "merges"});
  for (const char* name : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (model.has(name)) model.field(name).refuse("is not supported; only byte-level tokenizers are");
  }
  const auto dropout = model.find("dropout");
  if (dropout.has_value() && !dropout->is_null()) dropout->refuse("random ids are not supported; set it to null");
  // unk_token, fuse_unk and byte_fallback say what becomes of unknown characters; with all bytes known there are none.
  parts.whole_words = model.boolean_or("ignore_merges", false);
  OddTokens odd = add_vocabulary(model.field("vocab"), parts.vocabulary);
  const JsonView merges = model.field("merges");
  for (const simdjson::dom::element item : merges.array()) {
    const std::size_t rank = parts.merges.size();
    parts.merges.push_back(read_merge(merges.item(item, rank), parts.vocabulary, rank));
  }
  return odd;
}

AddedToken read_added(const JsonView& view) {
  view.know_fields({"id", "content", "single_word", "lstrip", "rstrip", "normalized", "special"});
  AddedToken token;
  token.content = view.field("content").string();
  const JsonView id = view.field("id");
  if (id.integer() < 0 || id.integer() > Vocabulary::largest_id)
    id.refuse(fmt::format("{} is no id from 0 to {}", id.integer(), Vocabulary::largest_id));
  token.id = static_cast<std::int32_t>(id.integer());
  token.single_word = view.boolean_or("single_word", false);
  token.lstrip = view.boolean_or("lstrip", false);
  token.rstrip = view.boolean_or("rstrip", false);
  token.special = view.boolean_or("special", false);
  token.normalized = view.boolean_or("normalized", !token.special);
  return token;
}

/// Hugging Face counts the ids of added tokens on from the vocabulary's whatever the file says; where the two differ,
/// nobody knows which ids a model was trained with.
void add_added_tokens(const JsonView& list, const OddTokens& odd, BpeParts& parts) {
  std::int64_t next = parts.vocabulary.tokens();
  std::set<std::string> seen;
  std::size_t index = 0;
  for (const simdjson::dom::element item : list.array()) {
    const JsonView view = list.item(item, index++);
    AddedToken token = read_added(view);
    if (token.content.empty()) view.refuse("an added token without text");
    if (!seen.insert(token.content).second) view.refuse(fmt::format("'{}' is given twice", token.content));
    const auto bytes = bytes_of_characters(token.content);
    const auto found = odd.find(token.content);
    const std::int32_t known = bytes.has_value()    ? parts.vocabulary.id_of(*bytes)
                               : found != odd.end() ? found->second
                                                    : Vocabulary::none;
    if (known != Vocabulary::none) {
      if (known != token.id)
        view.refuse(fmt::format("'{}' has id {} here and id {} in model.vocab", token.content, token.id, known));
    } else {
      if (token.id != next) {
        view.refuse(fmt::format("'{}' has id {}, but the next free id is {}, which Hugging Face's tokenizers gives it",
                                token.content, token.id, next));
      }
      if (!parts.vocabulary.add(token.id, token.content, false))
        view.refuse(fmt::format("id {} belongs to a token of model.vocab", token.id));
    }
    next = std::max<std::int64_t>(next, token.id + std::int64_t{1});
    parts.added.push_back(std::move(token));
  }
}

}  // namespace

BpeParts read_tokenizer_json(std::string_view text, const std::string& name, const FileOptions& options) {
  require(options.pattern.empty(), ExitCode::configuration,
          "the tokenizer {} has a pattern of its own: leave pattern out", name);
  simdjson::dom::parser parser;
  const JsonView root = parse_json(parser, text, name);
  root.know_fields({"version", "truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer", "post_processor",
                    "decoder", "model"});
  const std::string_view version = root.field("version").string();
  if (version != "1.0") root.field("version").refuse(fmt::format("'{}' is not the version 1.0 that is known", version));
  check_ends(root);
  BpeParts parts{.name = name, .vocabulary = {}, .merges = {}, .pre_tokenizer = {{}, ""}, .added = {}};
  parts.nfc = root.has("normalizer") && reads_nfc(root.field("normalizer"));
  parts.pre_tokenizer = PreTokenizerReader().read(root.field("pre_tokenizer"));
  const OddTokens odd = read_model(root.field("model"), parts);
  if (root.has("added_tokens")) add_added_tokens(root.field("added_tokens"), odd, parts);
  add_special(parts, options);
  return parts;
}

}  // namespace llmtrain
