// SPDX-License-Identifier: Apache-2.0
/// `llmtrain data info|dump|verify|at`: what is in a set, whether it is sound, what a step reads.
#include <algorithm>
#include <array>
#include <limits>
#include <memory>
#include <numeric>
#include <span>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "data_commands.hpp"
#include "llmtrain/base/error.hpp"
#include "llmtrain/base/json.hpp"
#include "llmtrain/base/text.hpp"
#include "llmtrain/config/read.hpp"
#include "llmtrain/data/indexed_dataset.hpp"
#include "llmtrain/data/prompt_lengths.hpp"
#include "llmtrain/data/sample_index.hpp"
#include "llmtrain/data/sidecar.hpp"
#include "llmtrain/data/training_data.hpp"
#include "llmtrain/driver/resolve.hpp"
#include "llmtrain/tokenizer/tokenizer.hpp"
#include "llmtrain/tools/options.hpp"

namespace llmtrain {
namespace {

constexpr std::int64_t block_tokens = 1 << 16;
constexpr std::int64_t named = 5;  // of each kind of oddity

std::int64_t empty_documents(const IndexedDataset& set) {
  std::int64_t empty = 0;
  for (std::int64_t d = 0; d < set.documents(); ++d)
    empty += set.first_sequence(d) == set.first_sequence(d + 1) ? 1 : 0;
  return empty;
}

std::string lengths_text(const IndexedDataset& set) {
  if (set.sequences() == 0) return "none";
  std::vector<std::int32_t> lengths(static_cast<std::size_t>(set.sequences()));
  for (std::size_t i = 0; i < lengths.size(); ++i)
    lengths[i] = static_cast<std::int32_t>(set.length(static_cast<std::int64_t>(i)));
  const auto middle = lengths.begin() + static_cast<std::ptrdiff_t>(lengths.size() / 2);
  std::nth_element(lengths.begin(), middle, lengths.end());
  const auto [shortest, longest] = std::minmax_element(lengths.begin(), lengths.end());
  return fmt::format("{} to {}, median {}, mean {:.1f}", *shortest, *longest, *middle,
                     static_cast<double>(set.tokens()) / static_cast<double>(set.sequences()));
}

void print_samples(const IndexedDataset& set, std::int64_t seq_len, std::int64_t samples) {
  require(set.tokens() > seq_len, ExitCode::bad_input, "{}: has {} tokens, but one sample takes seq_len + 1 = {}",
          set.prefix(), set.tokens(), seq_len + 1);
  const std::int64_t a_pass = (set.tokens() - 1) / seq_len;
  fmt::print("  samples     {} of {} tokens in one pass, {} tokens left over\n", grouped(a_pass), grouped(seq_len),
             grouped(set.tokens() - 1 - a_pass * seq_len));
  if (samples == 0) return;
  const SamplePlan plan = plan_samples(set.tokens(), seq_len, samples);
  fmt::print("  for {} samples: {} passes, which give {}; {}\n", grouped(samples), grouped(plan.epochs),
             grouped(plan.samples),
             plan.epochs == 1           ? "one shuffle"
             : plan.separate_last_epoch ? "the last pass is shuffled by itself, for little of it is needed"
                                        : "all passes are shuffled together");
}

/// Prints the first few of a kind, and how many there are.
class Oddities {
 public:
  explicit Oddities(std::string kind) : kind_(std::move(kind)) {}
  void add(std::int64_t document) {
    if (count_ < named) first_.push_back(document);
    ++count_;
  }
  void print() const {
    if (count_ == 0) return;
    fmt::print("  {:<11} {}: document{} {}{}\n", kind_, grouped(count_), count_ == 1 ? "" : "s",
               fmt::join(first_, ", "), count_ > named ? ", ..." : "");
  }

 private:
  std::string kind_;
  std::int64_t count_ = 0;
  std::vector<std::int64_t> first_;
};

/// Of all tokens: the largest id, and documents that say nothing.
struct Scan {
  std::int64_t largest = -1;
  Oddities empty{"empty"}, zero{"no tokens"}, single{"one token"}, constant{"one id"};
};

/// Throws Error(bad_input) for the first id outside [0, vocab).
Scan scan_tokens(const IndexedDataset& set, std::int64_t vocab) {
  Scan scan;
  std::vector<std::int32_t> tokens;
  for (std::int64_t d = 0; d < set.documents(); ++d) {
    std::int64_t count = 0;
    std::int32_t first = 0;
    bool same = true;
    for (std::int64_t s = set.first_sequence(d); s < set.first_sequence(d + 1); ++s) {
      for (std::int64_t begin = 0; begin < set.length(s); begin += block_tokens) {
        tokens.resize(static_cast<std::size_t>(std::min(block_tokens, set.length(s) - begin)));
        set.read(s, begin, tokens);
        if (count == 0) first = tokens.front();
        for (std::size_t i = 0; i < tokens.size(); ++i) {
          require(tokens[i] >= 0 && tokens[i] < vocab, ExitCode::bad_input,
                  "{}: document {} (sequence {}), token {} has id {}, but the vocabulary is {}", set.prefix(), d, s,
                  begin + static_cast<std::int64_t>(i), tokens[i], vocab);
          scan.largest = std::max<std::int64_t>(scan.largest, tokens[i]);
          same = same && tokens[i] == first;
        }
        count += static_cast<std::int64_t>(tokens.size());
      }
    }
    const bool has_sequence = set.first_sequence(d) < set.first_sequence(d + 1);
    if (count == 0) (has_sequence ? scan.zero : scan.empty).add(d);
    if (count == 1) scan.single.add(d);
    if (count > 1 && same) scan.constant.add(d);
  }
  return scan;
}

void check_sidecar(const IndexedDataset& set, const Sidecar& sidecar, const Scan& scan) {
  const auto same = [&](const char* what, std::int64_t said, std::int64_t is) {
    require(said == is, ExitCode::bad_input,
            "{}.json: says {} {}, but the set has {}; it belongs to another set: write the set again, or remove it",
            set.prefix(), said, what, is);
  };
  same("documents", sidecar.documents, set.documents());
  same("sequences", sidecar.sequences, set.sequences());
  same("tokens", sidecar.tokens, set.tokens());
  same("as its largest id", sidecar.max_token, scan.largest);
}

std::int64_t count_prompt_tokens(const IndexedDataset& set) {
  const PromptLengths prompts(set);
  std::int64_t tokens = 0;
  for (std::int64_t s = 0; s < set.sequences(); ++s) tokens += prompts[s];
  return tokens;
}

void print_document(const IndexedDataset& set, std::int64_t document, const Tokenizer* tokenizer) {
  for (std::int64_t s = set.first_sequence(document); s < set.first_sequence(document + 1); ++s) {
    std::vector<std::int32_t> tokens(static_cast<std::size_t>(set.length(s)));
    set.read(s, 0, tokens);
    fmt::print("document {}, sequence {}: {} tokens\n  {}\n", document, s, tokens.size(), fmt::join(tokens, " "));
    if (tokenizer != nullptr) fmt::print("  {}\n", json_string(tokenizer->decode(tokens)));
  }
  if (set.first_sequence(document) == set.first_sequence(document + 1)) fmt::print("document {}: empty\n", document);
}

}  // namespace

int data_info(const DataRequest& request) {
  require(request.seq_len >= 0 && request.samples >= 0, ExitCode::usage,
          "data info: --seq-len and --samples are not negative");
  require(request.samples == 0 || request.seq_len > 0, ExitCode::usage, "data info: --samples needs --seq-len");
  for (const std::string& prefix : request.words) {
    const IndexedDataset set(prefix);
    fmt::print("{}\n  documents   {} ({} empty)\n  sequences   {}\n  tokens      {} as {} ({})\n  lengths     {}\n",
               prefix, grouped(set.documents()), grouped(empty_documents(set)), grouped(set.sequences()),
               grouped(set.tokens()), set.type() == TokenType::uint16 ? "uint16" : "int32",
               human_bytes(set.tokens() * size_of(set.type())), lengths_text(set));
    if (const auto sidecar = read_sidecar(prefix)) {
      fmt::print("  made from   key {} of {}\n  tokenizer   {}, vocabulary {}, largest id {}, {}\n",
                 json_string(sidecar->key), fmt::join(sidecar->inputs, ", "), sidecar->tokenizer, sidecar->vocab,
                 sidecar->max_token,
                 sidecar->eod < 0 ? "no end of document" : fmt::format("documents end with {}", sidecar->eod));
    }
    if (has_prompts(prefix))
      fmt::print("  prompts     {} tokens (data.mask_prompt)\n", grouped(count_prompt_tokens(set)));
    if (request.seq_len > 0) print_samples(set, request.seq_len, request.samples);
  }
  return 0;
}

int data_dump(const DataRequest& request) {
  const IndexedDataset set(request.words.front());
  std::unique_ptr<Tokenizer> tokenizer;
  if (!request.tokenizer.empty()) {
    tokenizer = make_tokenizer(parse_tokenizer(request.tokenizer));
  }
  require(request.document < set.documents(), ExitCode::usage, "data dump --document {}: {} has {}, numbered from 0",
          request.document, set.prefix(), set.documents());
  if (request.document >= 0) {
    print_document(set, request.document, tokenizer.get());
  } else {
    for (std::int64_t d = 0; d < set.documents(); ++d) print_document(set, d, tokenizer.get());
  }
  return 0;
}

int data_verify(const DataRequest& request) {
  require(request.vocab >= 0, ExitCode::usage, "data verify --vocab {}: not negative", request.vocab);
  for (const std::string& prefix : request.words) {
    const IndexedDataset set(prefix);  // proves the structure
    const auto sidecar = read_sidecar(prefix);
    std::int64_t vocab = std::int64_t{std::numeric_limits<std::int32_t>::max()} + 1;
    if (sidecar) vocab = sidecar->vocab;
    if (request.vocab > 0) vocab = request.vocab;
    const Scan scan = scan_tokens(set, vocab);
    if (sidecar) check_sidecar(set, *sidecar, scan);
    const std::int64_t prompts = has_prompts(prefix) ? count_prompt_tokens(set) : 0;
    fmt::print("{}: sound; {} documents, {} tokens, largest id {}\n", prefix, grouped(set.documents()),
               grouped(set.tokens()), scan.largest);
    if (prompts > 0) fmt::print("  prompts     {} tokens\n", grouped(prompts));
    for (const Oddities* kind : {&scan.empty, &scan.zero, &scan.single, &scan.constant}) kind->print();
  }
  return 0;
}

int data_at(const DataRequest& request) {
  const NamedDeck named = named_deck(request.words);
  const Deck written = read_deck(named.path, named.overrides);
  const auto tokenizer = make_tokenizer(written.data.tokenizer);
  const Deck deck = resolve(written, tokenizer->vocab(), DeviceKind::cpu);
  require(request.step >= 1, ExitCode::usage, "data at: --step N is needed, from 1 on");
  const TrainingData data = open_training_data(deck.data, deck.run, deck.model.seq_len, deck.schedule.global_batch,
                                               deck.model.vocab, tokenizer->digest());
  const Dataset& train = *data.train;
  const std::int64_t batch = deck.schedule.global_batch;
  fmt::print("step {}: samples {} to {} of {} (data.samples {}, seed {})\n", request.step, (request.step - 1) * batch,
             request.step * batch - 1, train.samples(), deck.data.samples, deck.data.seed);
  for (std::int64_t i = (request.step - 1) * batch; i < request.step * batch; ++i) {
    fmt::print("sample {}\n", i);
    for (const SamplePiece& piece : train.pieces(i % train.samples())) {
      fmt::print("  {}: document {} (sequence {}), tokens {} to {}\n", piece.prefix, piece.document, piece.sequence,
                 piece.offset, piece.offset + piece.tokens - 1);
    }
  }
  return 0;
}

}  // namespace llmtrain
