// SPDX-License-Identifier: Apache-2.0
/// Encoding: added tokens, normalization, pieces, remembered words, merges; and decoding.
#include "bpe.hpp"

#include <algorithm>
#include <iterator>

#include "byte_alphabet.hpp"
#include "llmtrain/base/digest.hpp"
#include "llmtrain/base/error.hpp"
#include "llmtrain/base/text.hpp"
#include "nfc.hpp"
#include "word_cache.hpp"

namespace llmtrain {
namespace {

TokenFinder finder_of(const std::vector<AddedToken>& tokens, bool normalized, bool nfc) {
  std::vector<AddedToken> chosen;
  std::string buffer;
  for (AddedToken token : tokens) {
    if (token.normalized != normalized || token.content.empty()) continue;
    if (normalized && nfc) token.content = to_nfc(token.content, buffer);
    chosen.push_back(std::move(token));
  }
  return TokenFinder(std::move(chosen));
}

}  // namespace

/// What one call of encode needs; kept for later calls, because the words of texts are alike.
struct BpeTokenizer::Workspace {
  WordCache words;
  Merger merger;
  std::vector<std::int32_t> symbols;
  std::vector<Segment> raw_segments;
  std::vector<Segment> normalized_segments;
  std::string normalized;
};

/// One call of encode.
class BpeTokenizer::Encoding {
 public:
  Encoding(const BpeTokenizer& tokenizer, Workspace& workspace, bool special_too, std::vector<std::int32_t>& tokens)
      : tokenizer_(tokenizer), workspace_(workspace), special_too_(special_too), tokens_(tokens) {}

  void add_document(std::string_view text) {
    if (tokenizer_.raw_.empty()) return add_raw(text);
    tokenizer_.raw_.cut(text, special_too_, workspace_.raw_segments);
    for (const Segment& segment : workspace_.raw_segments) {
      if (segment.id != Segment::text_id) {
        tokens_.push_back(segment.id);
      } else {
        add_raw(text.substr(segment.begin, segment.end - segment.begin));
      }
    }
  }

 private:
  void add_raw(std::string_view text) {
    if (tokenizer_.parts_.nfc) text = to_nfc(text, workspace_.normalized);
    if (tokenizer_.normalized_.empty()) return add_text(text);
    tokenizer_.normalized_.cut(text, special_too_, workspace_.normalized_segments);
    for (const Segment& segment : workspace_.normalized_segments) {
      if (segment.id != Segment::text_id) {
        tokens_.push_back(segment.id);
      } else {
        add_text(text.substr(segment.begin, segment.end - segment.begin));
      }
    }
  }

  void add_text(std::string_view text) {
    if (tokenizer_.scan_ == nullptr) {
      tokenizer_.parts_.pre_tokenizer.split(
          text, [this](std::string_view piece) { add_piece(piece, piece.data() + piece.size()); });
      return;
    }
    const char* end = text.data() + text.size();
    for (const char* at = text.data(); at != end;) {
      const char* stop = tokenizer_.scan_(at, end);
      add_piece({at, stop}, end);
      at = stop;
    }
  }

  /// `end`: how far bytes behind the piece may be read.
  void add_piece(std::string_view piece, const char* end) {
    if (piece.size() > WordCache::longest) {
      const auto& ids = ids_of(piece);
      tokens_.insert(tokens_.end(), ids.begin(), ids.end());
      return;
    }
    const WordCache::Key key = WordCache::key_of(piece, end);
    WordCache::Entry& entry = workspace_.words.entry(key);
    if (WordCache::holds(entry, key, piece.size())) {
      for (std::size_t i = 0; i < entry.count; ++i) tokens_.push_back(entry.ids[i]);
      return;
    }
    const auto& ids = ids_of(piece);
    if (ids.size() <= WordCache::most_ids) WordCache::put(entry, key, piece.size(), ids);
    tokens_.insert(tokens_.end(), ids.begin(), ids.end());
  }

  const std::vector<std::int32_t>& ids_of(std::string_view piece) {
    std::vector<std::int32_t>& symbols = workspace_.symbols;
    symbols.clear();
    if (tokenizer_.parts_.whole_words) {
      const std::int32_t id = tokenizer_.parts_.vocabulary.id_of(piece);
      if (id != Vocabulary::none) {
        symbols.push_back(id);
        return symbols;
      }
    }
    for (const char byte : piece) symbols.push_back(tokenizer_.bytes_[static_cast<unsigned char>(byte)]);
    workspace_.merger.merge(tokenizer_.merges_, symbols);
    return symbols;
  }

  const BpeTokenizer& tokenizer_;
  Workspace& workspace_;
  bool special_too_;
  std::vector<std::int32_t>& tokens_;
};

BpeTokenizer::BpeTokenizer(BpeParts parts, std::optional<std::int32_t> eod)
    : parts_(std::move(parts)),
      eod_(eod),
      merges_(parts_.merges.size()),
      scan_(parts_.pre_tokenizer.single_scan()),
      raw_(finder_of(parts_.added, false, parts_.nfc)),
      normalized_(finder_of(parts_.added, true, parts_.nfc)) {
  for (std::size_t b = 0; b < bytes_.size(); ++b) {
    const char byte = static_cast<char>(b);
    bytes_[b] = parts_.vocabulary.id_of({&byte, 1});
    require(
        bytes_[b] != Vocabulary::none, ExitCode::bad_input,
        "{}: no token for the byte 0x{:02x} (written '{}'), so that not every text can be encoded: train it with the "
        "whole byte alphabet",
        parts_.name, b, characters_of_bytes({&byte, 1}));
  }
  for (std::size_t i = 0; i < parts_.merges.size(); ++i) {
    const Merge& merge = parts_.merges[i];
    require(merges_.add(merge), ExitCode::bad_input, "{}: merge {} ('{}' '{}') repeats an earlier one", parts_.name, i,
            characters_of_bytes(parts_.vocabulary.bytes_of(merge.left)),
            characters_of_bytes(parts_.vocabulary.bytes_of(merge.right)));
  }
  for (const AddedToken& token : parts_.added) added_text_.emplace(token.id, token.content);
  digest_ = make_digest();
}

BpeTokenizer::~BpeTokenizer() = default;

void BpeTokenizer::encode(std::string_view text, bool special_too, std::vector<std::int32_t>& tokens) const {
  std::unique_ptr<Workspace> workspace;
  {
    const std::lock_guard lock(mutex_);
    if (!idle_.empty()) {
      workspace = std::move(idle_.back());
      idle_.pop_back();
    }
  }
  if (workspace == nullptr) workspace = std::make_unique<Workspace>();
  Encoding(*this, *workspace, special_too, tokens).add_document(text);
  const std::lock_guard lock(mutex_);
  idle_.push_back(std::move(workspace));
}

std::string BpeTokenizer::decode(std::span<const std::int32_t> tokens) const {
  std::string text;
  for (const std::int32_t token : tokens) {
    require(parts_.vocabulary.holds(token), ExitCode::bad_input,
            "token id {} is not in the vocabulary of {} ({} ids, {} of them holes)", token, parts_.name, vocab(),
            parts_.vocabulary.holes());
    if (token == eod_) continue;
    const auto added = added_text_.find(token);
    text += added != added_text_.end() ? added->second : parts_.vocabulary.bytes_of(token);
  }
  return text;
}

std::string BpeTokenizer::describe() const {
  const std::int64_t holes = parts_.vocabulary.holes();
  return fmt::format("{}: {} ids{}, {} merges{}, end of document {}", parts_.name, grouped(vocab()),
                     holes > 0 ? fmt::format(" ({} of them holes, never produced)", grouped(holes)) : "",
                     grouped(static_cast<std::int64_t>(parts_.merges.size())), parts_.nfc ? ", text in NFC" : "",
                     eod_.has_value() ? std::to_string(*eod_) : "none");
}

std::string BpeTokenizer::make_digest() const {
  Digest digest;
  const auto add_number = [&digest](std::int64_t number) { digest.add(&number, sizeof number); };
  const auto add_text = [&](std::string_view text) {
    add_number(std::ssize(text));
    digest.add(text.data(), text.size());
  };
  add_text("byte-level BPE 1");
  for (std::int32_t id = 0; id < vocab(); ++id) {
    if (parts_.vocabulary.holds(id)) add_text(parts_.vocabulary.bytes_of(id));
    add_number(id);
  }
  std::vector<Merge> merges = parts_.merges;
  std::sort(merges.begin(), merges.end(), [](const Merge& a, const Merge& b) {
    return std::tie(a.rank, a.left, a.right) < std::tie(b.rank, b.left, b.right);
  });
  digest.add(merges.data(), merges.size() * sizeof(Merge));
  add_number((parts_.whole_words ? 1 : 0) + (parts_.nfc ? 2 : 0));
  add_text(parts_.pre_tokenizer.text());
  for (const AddedToken& token : parts_.added) {
    add_text(token.content);
    for (const std::int64_t field :
         {token.id, std::int32_t{token.single_word}, std::int32_t{token.lstrip}, std::int32_t{token.rstrip},
          std::int32_t{token.normalized}, std::int32_t{token.special}}) {
      add_number(field);
    }
  }
  return "bpe-" + digest.hex();
}

}  // namespace llmtrain
