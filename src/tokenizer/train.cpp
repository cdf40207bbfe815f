// SPDX-License-Identifier: Apache-2.0
/// The most frequent pair becomes a token, again and again; the order of equal counts is Hugging Face's.
#include "llmtrain/tokenizer/train.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "byte_alphabet.hpp"
#include "llmtrain/base/error.hpp"
#include "llmtrain/base/json.hpp"
#include "llmtrain/tokenizer/scan.hpp"
#include "parts.hpp"

namespace llmtrain {
namespace {

using Pair = std::pair<std::uint32_t, std::uint32_t>;

struct PairHash {
  std::size_t operator()(const Pair& pair) const {
    return (std::uint64_t{pair.first} << 32 | pair.second) * 0x9E3779B97F4A7C15u;
  }
};

struct Word {
  std::vector<std::uint32_t> symbols;
  std::int64_t count;
};

/// A pair that may be merged next, in the words that it came to be in since it was last put in line.
struct Candidate {
  std::int64_t count;
  Pair pair;
  std::vector<std::uint32_t> words;

  /// Of the heap: the largest count on top, and of equal ones the pair of smallest ids.
  bool operator<(const Candidate& other) const {
    return count != other.count ? count < other.count : pair > other.pair;
  }
};

class PairMerger {
 public:
  explicit PairMerger(std::vector<Word> words) : words_(std::move(words)) {
    for (std::uint32_t w = 0; w < words_.size(); ++w) {
      const auto& symbols = words_[w].symbols;
      for (std::size_t i = 0; i + 1 < symbols.size(); ++i) change({symbols[i], symbols[i + 1]}, w, 1);
    }
    put_in_line();
  }

  /// The pair to merge next, which leaves the line; false if there is none.
  bool next(Candidate& candidate) {
    while (!line_.empty()) {
      std::pop_heap(line_.begin(), line_.end());
      candidate = std::move(line_.back());
      line_.pop_back();
      const std::int64_t count = counts_.at(candidate.pair);
      if (count == candidate.count) return count > 0;
      candidate.count = count;  // other merges took some since
      push(std::move(candidate));
    }
    return false;
  }

  /// Replaces the pair by `id` in the candidate's words.
  void merge(const Candidate& candidate, std::uint32_t id) {
    for (const std::uint32_t w : candidate.words) merge_in(w, candidate.pair, id);
    put_in_line();
  }

 private:
  void change(const Pair& pair, std::uint32_t word, int times) {
    counts_[pair] += times * words_[word].count;
    if (times < 0) return;
    std::vector<std::uint32_t>& fresh = fresh_[pair];
    if (fresh.empty() || fresh.back() != word) fresh.push_back(word);
  }

  void merge_in(std::uint32_t w, const Pair& pair, std::uint32_t id) {
    std::vector<std::uint32_t>& symbols = words_[w].symbols;
    std::size_t kept = 0;  // symbols before are done
    for (std::size_t i = 0; i < symbols.size(); ++i) {
      if (symbols[i] != pair.first || i + 1 == symbols.size() || symbols[i + 1] != pair.second) {
        symbols[kept++] = symbols[i];
        continue;
      }
      if (kept > 0) {
        change({symbols[kept - 1], pair.first}, w, -1);
        change({symbols[kept - 1], id}, w, 1);
      }
      ++i;
      if (i + 1 < symbols.size()) {
        change({pair.second, symbols[i + 1]}, w, -1);
        change({id, symbols[i + 1]}, w, 1);
      }
      symbols[kept++] = id;
    }
    symbols.resize(kept);
  }

  void push(Candidate candidate) {
    line_.push_back(std::move(candidate));
    std::push_heap(line_.begin(), line_.end());
  }

  void put_in_line() {
    for (auto& [pair, words] : fresh_) {
      const std::int64_t count = counts_.at(pair);
      if (count > 0) push({count, pair, std::move(words)});
    }
    fresh_.clear();
  }

  std::vector<Word> words_;
  std::unordered_map<Pair, std::int64_t, PairHash> counts_;
  std::unordered_map<Pair, std::vector<std::uint32_t>, PairHash> fresh_;  ///< words with new pairs
  std::vector<Candidate> line_;                                           ///< heap
};

/// The tokens of a vocabulary that grows, in characters that stand for bytes.
struct Tokens {
  std::vector<std::string> names;
  std::unordered_map<std::string, std::uint32_t> ids;

  std::uint32_t id_of(const std::string& name) {
    const auto [found, fresh] = ids.emplace(name, static_cast<std::uint32_t>(names.size()));
    if (fresh) names.push_back(name);
    return found->second;
  }
};

constexpr const char* byte_level =
    R"({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": )";

std::string pre_tokenizer_json(const std::string& regex) {
  if (regex.empty()) return std::string(byte_level) + "true}";
  return R"({"type": "Sequence", "pretokenizers": [{"type": "Split", "pattern": {"Regex": )" + json_string(regex) +
         R"(}, "behavior": "Isolated", "invert": false}, )" + byte_level + "false}]}";
}

std::string file_of(const Tokens& tokens, const std::vector<Pair>& merges, std::size_t special,
                    const std::string& pre_tokenizer) {
  std::string added, vocab, pairs;
  for (std::size_t id = 0; id < tokens.names.size(); ++id) {
    const std::string name = json_string(tokens.names[id]);
    vocab += fmt::format("{}\n      {}: {}", id == 0 ? "" : ",", name, id);
    if (id >= special) continue;
    added += fmt::format(
        "{}\n    {{\"id\": {}, \"content\": {}, \"single_word\": false, \"lstrip\": false, \"rstrip\": false, "
        "\"normalized\": false, \"special\": true}}",
        id == 0 ? "" : ",", id, name);
  }
  for (const Pair& pair : merges) {
    pairs += fmt::format("{}\n      [{}, {}]", pairs.empty() ? "" : ",", json_string(tokens.names[pair.first]),
                         json_string(tokens.names[pair.second]));
  }
  return fmt::format(
      "{{\n  \"version\": \"1.0\",\n  \"truncation\": null,\n  \"padding\": null,\n  \"added_tokens\": [{}],\n"
      "  \"normalizer\": null,\n  \"pre_tokenizer\": {},\n  \"post_processor\": null,\n  \"decoder\": {}true}},\n"
      "  \"model\": {{\n    \"type\": \"BPE\",\n    \"dropout\": null,\n    \"unk_token\": null,\n"
      "    \"continuing_subword_prefix\": null,\n    \"end_of_word_suffix\": null,\n    \"fuse_unk\": false,\n"
      "    \"byte_fallback\": false,\n    \"ignore_merges\": false,\n    \"vocab\": {{{}\n    }},\n"
      "    \"merges\": [{}]\n  }}\n}}\n",
      added, pre_tokenizer, byte_level, vocab, pairs);
}

}  // namespace

struct BpeTrainer::Pattern {
  PreTokenizer pre_tokenizer;
  std::string regex;  ///< as the file is to hold it; "": ByteLevel's own
};

BpeTrainer::BpeTrainer(std::string_view pattern) {
  const KnownPattern* known = find_pattern_name(pattern);
  require(known == nullptr || !known->rust_only, ExitCode::configuration,
          "the pattern {} cannot be written into a tokenizer.json, where its '$' means another thing: take llama3",
          pattern);
  std::string regex(pattern);
  if (known != nullptr) regex = known == find_pattern_name("gpt2") ? "" : std::string(known->regex);
  pattern_ = std::make_unique<Pattern>(Pattern{named_pattern(std::string(pattern)), std::move(regex)});
}

BpeTrainer::~BpeTrainer() = default;

void BpeTrainer::add(std::string_view text) {
  pattern_->pre_tokenizer.split(text, [this](std::string_view piece) { ++words_[std::string(piece)]; });
}

void BpeTrainer::check(std::int64_t vocab, std::span<const std::string> special) const {
  const std::int64_t least = 256 + std::ssize(special);
  require(vocab >= least && vocab <= Vocabulary::largest_id, ExitCode::configuration,
          "a trained vocabulary of {} ids: choose from {} (256 bytes and {} special tokens) to {}", vocab, least,
          special.size(), Vocabulary::largest_id);
}

std::string BpeTrainer::train(std::int64_t vocab, std::span<const std::string> special) const {
  check(vocab, special);
  Tokens tokens;
  for (const std::string& text : special) tokens.id_of(text);
  const std::size_t special_count = tokens.names.size();
  std::map<std::uint32_t, int> alphabet;  // in the order of the characters, as there
  for (int b = 0; b < 256; ++b) alphabet[character_of_byte(static_cast<unsigned char>(b))] = b;
  std::vector<std::uint32_t> id_of_byte(256);
  for (const auto& [character, b] : alphabet) {
    const char byte = static_cast<char>(b);
    id_of_byte[static_cast<std::size_t>(b)] = tokens.id_of(characters_of_bytes({&byte, 1}));
  }
  std::vector<Word> words;
  for (const auto& [text, count] : words_) {
    Word word{{}, count};
    for (const char byte : text) word.symbols.push_back(id_of_byte[static_cast<unsigned char>(byte)]);
    words.push_back(std::move(word));
  }
  PairMerger merger(std::move(words));
  std::vector<Pair> merges;
  Candidate candidate;
  while (static_cast<std::int64_t>(tokens.names.size()) < vocab && merger.next(candidate)) {
    const std::uint32_t id = tokens.id_of(tokens.names[candidate.pair.first] + tokens.names[candidate.pair.second]);
    merges.push_back(candidate.pair);
    merger.merge(candidate, id);
  }
  // A pair whose token came about in another way too may have been merged twice; then the later one counts.
  std::set<Pair> seen;
  std::vector<Pair> last;
  for (auto pair = merges.rbegin(); pair != merges.rend(); ++pair) {
    if (seen.insert(*pair).second) last.push_back(*pair);
  }
  std::reverse(last.begin(), last.end());
  return file_of(tokens, last, special_count, pre_tokenizer_json(pattern_->regex));
}

}  // namespace llmtrain
