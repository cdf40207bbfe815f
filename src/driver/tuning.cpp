// SPDX-License-Identifier: Apache-2.0
/// Who times what, and what is read and written.
#include "llmtrain/driver/tuning.hpp"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <utility>

#include "llmtrain/base/agree.hpp"
#include "llmtrain/base/clock.hpp"
#include "llmtrain/base/error.hpp"
#include "llmtrain/base/files.hpp"

namespace llmtrain {

namespace {

namespace fs = std::filesystem;

/// Products below this many FLOP are over before a choice would pay.
constexpr double chosen_flops = 1e9;
/// The part of a step's FLOP from which on a product is worth a tenth of a second for each of its algorithms.
constexpr double settled_part = 0.02;

/// The lowest rank that meets each product, by tuner.
using Owners = std::map<std::string, std::map<GemmKey, int>>;

/// Collective.
Owners find_owners(const ProductTuning& rank, const MpiComm& world) {
  GemmChoiceBook mine;
  GemmChoices& products = mine[rank.tuner->identity()];
  for (const auto& [key, calls] : rank.calls) {
    if (key.flops() >= chosen_flops) products[key];
  }
  Owners owners;
  int owner = 0;
  for (const std::string& text : world.all_gather(to_text(mine))) {
    for (const auto& [identity, wanted] : parse_gemm_choices(text, "message")) {
      std::map<GemmKey, int>& of_tuner = owners[identity];  // there even where no product is worth a choice
      for (const auto& [key, none] : wanted) of_tuner.try_emplace(key, owner);
    }
    ++owner;
  }
  return owners;
}

std::string cache_file(const std::string& folder, std::string identity) {
  std::ranges::replace_if(
      identity, [](unsigned char c) { return std::isalnum(c) == 0; }, '-');
  return fmt::format("{}/gemm-{}.txt", folder, identity);
}

/// A cache that is absent or damaged only costs the time to choose again.
GemmChoices read_cache(const std::string& folder, const std::string& identity) {
  if (folder.empty()) return {};
  try {
    const std::string path = cache_file(folder, identity);
    return parse_gemm_choices(read_file(path), path)[identity];
  } catch (const Error&) {
    return {};
  }
}

void write_cache(const std::string& folder, const std::string& identity, const GemmChoices& found) {
  if (folder.empty()) return;
  try {
    GemmChoices all = read_cache(folder, identity);  // other jobs may have written
    for (const auto& [key, choice] : found) all[key] = choice;
    make_directories(folder);
    atomic_write(cache_file(folder, identity), to_text({{identity, all}}));
  } catch (const Error&) {  // a later run chooses again
  }
}

/// The choices of the run so far; none for a new one.
GemmChoiceBook read_run(const ChoiceFiles& files, const Owners& owners, std::string& warning) {
  if (files.run.empty() || !files.resumed) return {};
  if (!fs::exists(files.run)) {
    warning = fmt::format(
        "run.deterministic: {} is not there, in which this run's algorithms of matrix products would be; they are "
        "chosen anew, so that results may differ in rounding from those of a run that was not stopped",
        files.run);
    return {};
  }
  GemmChoiceBook book = parse_gemm_choices(read_file(files.run), files.run);
  for (const auto& [identity, wanted] : owners) {
    if (book.contains(identity)) continue;
    fail(ExitCode::checkpoint_incompatible,
         "run.deterministic: {} holds algorithms of matrix products for '{}', and this job runs on '{}', which cannot "
         "give the same bits; go on where the run began, or with run.deterministic=false, or remove the file to choose "
         "anew",
         files.run, book.empty() ? "nothing" : book.begin()->first, identity);
  }
  return book;
}

/// What is known beforehand, from rank 0. Collective.
GemmChoiceBook known_choices(const Owners& owners, const MpiComm& world, const ChoiceFiles& files,
                             std::string& warning) {
  std::string text;
  agree_on_root(world, [&] {
    GemmChoiceBook book = read_run(files, owners, warning);
    for (const auto& [identity, wanted] : owners) book[identity].merge(read_cache(files.cache, identity));
    text = to_text(book);
  });
  return parse_gemm_choices(world.broadcast(text, 0), "message");
}

/// Of a product in this rank's step.
Timing timing_of(const GemmKey& key, const std::map<GemmKey, std::int64_t>& calls) {
  double all = 0;
  for (const auto& [product, count] : calls) all += static_cast<double>(count) * product.flops();
  const double part = static_cast<double>(calls.at(key)) * key.flops() / all;
  return part >= settled_part ? Timing::settled : Timing::brief;
}

/// Adds what this rank has to find, and gives it to the others. Collective.
GemmChoiceBook tune(const ProductTuning& rank, const MpiComm& world, const Owners& owners,
                    const GemmChoiceBook& known) {
  const std::string identity = rank.tuner->identity();
  GemmChoiceBook found;
  agree(world, [&] {
    const GemmChoices& have = known.at(identity);
    for (const auto& [key, owner] : owners.at(identity)) {
      if (owner != world.rank()) continue;
      const auto place = have.find(key);
      if (place != have.end() && rank.tuner->accepts(key, place->second)) continue;
      found[identity][key] = rank.tuner->fastest(rank.stream, key, rank.memory, timing_of(key, rank.calls));
    }
  });
  GemmChoiceBook all;
  for (const std::string& text : world.all_gather(to_text(found))) {
    for (auto& [name, choices] : parse_gemm_choices(text, "message")) all[name].merge(choices);
  }
  return all;
}

/// Of the products that the job meets, from `found` or else from `known`.
GemmChoiceBook merged(const Owners& owners, const GemmChoiceBook& known, const GemmChoiceBook& found) {
  GemmChoiceBook book;
  for (const auto& [identity, wanted] : owners) {
    const auto now = found.find(identity);
    for (const auto& [key, owner] : wanted) {
      const bool fresh = now != found.end() && now->second.contains(key);
      book[identity][key] = fresh ? now->second.at(key) : known.at(identity).at(key);
    }
  }
  return book;
}

/// On rank 0. What the run knew and did not need now stays.
void write_run(const ChoiceFiles& files, GemmChoiceBook book) {
  if (files.run.empty()) return;
  if (files.resumed && fs::exists(files.run)) {
    const std::string before = read_file(files.run);
    for (auto& [identity, choices] : parse_gemm_choices(before, files.run)) book[identity].merge(choices);
    if (to_text(book) == before) return;
  }
  atomic_write(files.run, to_text(book));
}

double rate(const std::map<GemmKey, std::int64_t>& calls, const GemmChoices& choices) {
  double flops = 0, seconds = 0;
  for (const auto& [key, count] : calls) {
    const auto place = choices.find(key);
    if (place == choices.end() || place->second.seconds == 0) continue;
    flops += static_cast<double>(count) * key.flops();
    seconds += static_cast<double>(count) * place->second.seconds;
  }
  return seconds > 0 ? flops / seconds : 0;
}

std::int64_t size_of(const GemmChoiceBook& book) {
  std::int64_t size = 0;
  for (const auto& [identity, choices] : book) size += std::ssize(choices);
  return size;
}

}  // namespace

std::string choice_cache() {
  if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache != nullptr && *cache != 0) {
    return std::string(cache) + "/llmtrain";
  }
  if (const char* home = std::getenv("HOME"); home != nullptr && *home != 0) {
    return std::string(home) + "/.cache/llmtrain";
  }
  return {};
}

ChosenProducts choose_products(const ProductTuning& rank, const MpiComm& world, const ChoiceFiles& files) {
  if (world.all_reduce(std::int64_t{rank.tuner != nullptr}, MpiOp::min) == 0) return {};
  const Stopwatch watch;
  ChosenProducts result;
  const Owners owners = find_owners(rank, world);
  const GemmChoiceBook known = known_choices(owners, world, files, result.warning);
  const GemmChoiceBook found = tune(rank, world, owners, known);
  GemmChoiceBook book = merged(owners, known, found);
  agree_on_root(world, [&] {
    for (const auto& [identity, choices] : found) write_cache(files.cache, identity, choices);
    write_run(files, book);
  });
  const GemmChoices& mine = book[rank.tuner->identity()];
  rank.tuner->use(mine);
  result.products = size_of(book);
  result.tuned = size_of(found);
  result.seconds = watch.seconds();
  result.flops_a_second = rate(rank.calls, mine);
  return result;
}

}  // namespace llmtrain
