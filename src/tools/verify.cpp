// SPDX-License-Identifier: Apache-2.0
/// `llmtrain verify DECK`: the first steps of the deck's layout against those of another one, in one job; or, with
/// --dump, their numbers for comparison with other programs.
#include <algorithm>
#include <iostream>
#include <optional>
#include <sstream>

#include "llmtrain/base/agree.hpp"
#include "llmtrain/config/read.hpp"
#include "llmtrain/driver/compare.hpp"
#include "llmtrain/driver/dump.hpp"
#include "llmtrain/driver/launch.hpp"
#include "llmtrain/tools/options.hpp"

namespace llmtrain {

namespace {

using Overrides = std::vector<std::string>;

/// What makes any deck's layout that of one rank.
const char* const one_rank =
    "parallel.tensor=1 parallel.pipeline=1 parallel.shard=0 parallel.zero=0 parallel.stage_layers=[] "
    "schedule.kind=1f1b schedule.chunks=1 schedule.recompute=none";

struct Request {
  NamedDeck deck;
  std::string dump;
  std::int64_t steps = 0;
  std::string against = one_rank;
};

/// Nothing after --help was printed.
std::optional<Request> parse(const MpiComm& world, Arguments arguments) {
  namespace po = boost::program_options;
  Request request;
  po::options_description options("Options");
  options.add_options()            //
      ("help", "print this text")  //
      ("against", po::value(&request.against)->value_name("'KEY=VALUE ...'"),
       "the reference: the deck with these keys, on the first tensor x pipeline x shard ranks (default: one rank)")  //
      ("dump", po::value(&request.dump)->value_name("FILE.h5"),
       "compare nothing; write tokens, loss, gradients and parameters, whole")  //
      ("steps", po::value(&request.steps)->value_name("K"), "steps to run (default: 3; with --dump 1)");
  const CommandLine line = parse_options("verify", arguments, options);
  if (line.options.contains("help")) {
    if (world.rank() == 0) std::cout << tool_usage("verify", options);
    return std::nullopt;
  }
  require(!line.words.empty(), ExitCode::usage, "verify: a deck is needed (see llmtrain verify --help)");
  require(request.dump.empty() || !line.options.contains("against"), ExitCode::usage,
          "verify: --dump compares nothing: leave --against out");
  if (!line.options.contains("steps")) request.steps = request.dump.empty() ? 3 : 1;
  require(request.steps >= 1, ExitCode::usage, "verify: --steps must be at least 1");
  request.deck = named_deck(line.words);
  return request;
}

/// The command line's overrides, those of `against` in place of what they repeat.
Overrides reference_overrides(const Request& request) {
  const auto key = [](const std::string& text) { return text.substr(0, text.find('=')); };
  std::istringstream words(request.against);
  const Overrides against{std::istream_iterator<std::string>(words), {}};
  Overrides all;
  for (const std::string& given : request.deck.overrides) {
    const bool replaced =
        std::any_of(against.begin(), against.end(), [&](const std::string& other) { return key(other) == key(given); });
    if (!replaced) all.push_back(given);
  }
  all.insert(all.end(), against.begin(), against.end());
  return all;
}

/// Ranks that a layout takes when no replica is more than the deck asks for.
int least_ranks(const ParallelConfig& p) { return p.tensor * p.pipeline * std::max(p.shard, 1); }

LayoutNumbers run(const Launch& start, std::int64_t steps) {
  return run_layout({start.deck, start.place, *start.device, start.data.train, start.masked_token()}, steps);
}

/// The reference's numbers on the ranks that run it, which are the first ones.
LayoutNumbers run_reference(const Request& request, Compute compute, const MpiComm& world) {
  const Overrides overrides = reference_overrides(request);
  const Deck deck = read_shared_deck(request.deck.path, overrides, world, {});
  const int ranks = least_ranks(deck.parallel);
  agree(world, [&] {
    require(
        deck.precision.compute == compute, ExitCode::configuration,
        "verify: --against '{}' changes precision.compute: layouts are compared in one precision, each with its bounds",
        request.against);
    require(ranks <= world.size(), ExitCode::configuration,
            "verify: --against '{}' takes {} ranks, but the job has {}: start more, or compare with a smaller layout",
            request.against, ranks, world.size());
  });
  const MpiComm members = world.split(world.rank() < ranks ? 0 : -1, world.rank());
  LayoutNumbers numbers;
  agree(world, [&] {
    if (members) numbers = run(launch(request.deck.path, overrides, members, Start::fresh), request.steps);
  });
  return numbers;
}

/// Prints what was found; 0 or 1.
int compare_layouts(const Request& request, const MpiComm& world) {
  const LayoutNumbers numbers =
      run(launch(request.deck.path, request.deck.overrides, world, Start::fresh), request.steps);
  const LayoutNumbers reference = run_reference(request, numbers.compute, world);
  std::int64_t failed = 0;
  if (world.rank() == 0) {
    const std::vector<Check> checks = compare(numbers, reference, Agreement::bound);
    failed = first_failure(checks) != nullptr ? 1 : 0;
    std::cout << "verify: " << numbers.layout << "\nagainst " << reference.layout << '\n'
              << report(checks) << (failed != 0 ? "they differ\n" : "they train the same model\n") << std::flush;
  }
  failed = world.all_reduce(failed, MpiOp::max);
  return static_cast<int>(failed != 0 ? ExitCode::comparison_failed : ExitCode::done);
}

}  // namespace

int tool_verify(const MpiComm& world, Arguments arguments) {
  std::optional<Request> request;
  agree(world, [&] { request = parse(world, arguments); });
  if (!request) return 0;
  if (request->dump.empty()) return compare_layouts(*request, world);
  Launch start = launch(request->deck.path, request->deck.overrides, world, Start::fresh);
  dump_steps(start, request->steps, request->dump);
  return 0;
}

}  // namespace llmtrain
