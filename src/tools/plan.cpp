// SPDX-License-Identifier: Apache-2.0
/// `llmtrain plan DECK --ranks N`: memory, communication, FLOPs and time of a layout, without device, MPI or data.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdio>
#include <optional>

#include "llmtrain/base/files.hpp"
#include "llmtrain/config/dump.hpp"
#include "llmtrain/config/read.hpp"
#include "llmtrain/driver/resolve.hpp"
#include "llmtrain/plan/report.hpp"
#include "llmtrain/plan/search.hpp"
#include "llmtrain/tokenizer/tokenizer.hpp"
#include "llmtrain/tools/options.hpp"

namespace llmtrain {

namespace {

struct Request {
  NamedDeck deck;
  int ranks = 0, nodes = 0, ranks_a_node = 0;
  std::string gpu, hardware, to = "planned";
  int rows = 20, take = 0;
  bool json = false, search = false;
};

/// Nothing after --help was printed.
std::optional<Request> parse(Arguments arguments) {
  namespace po = boost::program_options;
  Request r;
  po::options_description shown("Options");
  shown.add_options()          //
      ("help,h", "show this")  //
      ("ranks", po::value(&r.ranks)->value_name("N"), "ranks of the job, one a device")(
          "nodes", po::value(&r.nodes)->value_name("N"), "nodes of the job, in place of --ranks")(
          "gpus-per-node", po::value(&r.ranks_a_node)->value_name("N"), "ranks of a node (default: the hardware's)")(
          "gpu", po::value(&r.gpu)->value_name("NAME"),
          fmt::format("{} (default: h100-80g, or cpu where run.device is cpu)", fmt::join(hardware_names(), ", "))
              .c_str())(
          "hardware", po::value(&r.hardware)->value_name("FILE"),
          "constants of a machine, as llmtrain calibrate writes them, or 'base: h100-80g' and what is other")  //
      ("json", po::bool_switch(&r.json), "print one JSON object");
  shown.add_options()  //
      ("search", po::bool_switch(&r.search), "rank all layouts, by memory and then time")(
          "top", po::value(&r.rows)->value_name("N"), "with --search: rows to print (default: 20)")(
          "take", po::value(&r.take)->value_name("K"), "with --search: write deck and job script of the K-th")(
          "to", po::value(&r.to)->value_name("FOLDER"), "where --take writes deck.yaml and job.sh (default: planned)");
  const CommandLine line = parse_options("plan", arguments, shown);
  if (line.options.contains("help")) {
    fmt::print("{}", tool_usage("plan", shown));
    return std::nullopt;
  }
  require(!line.words.empty(), ExitCode::usage, "plan: a deck is needed (see llmtrain plan --help)");
  require(r.ranks >= 0 && r.nodes >= 0 && r.ranks_a_node >= 0 && (r.ranks > 0) != (r.nodes > 0), ExitCode::usage,
          "plan: say how large the job is, with --ranks N or --nodes N (at least 1)");
  require(r.gpu.empty() || r.hardware.empty(), ExitCode::usage, "plan: --gpu and --hardware exclude each other");
  require(!r.search || !r.json, ExitCode::usage, "plan: --search prints a table: leave --json out");
  require(r.search || r.take == 0, ExitCode::usage, "plan: --take needs --search");
  r.deck = named_deck(line.words);
  return r;
}

Hardware hardware_of(const Request& request, const Deck& deck) {
  const bool cpu = deck.run.device == DeviceChoice::cpu;
  Hardware hardware = !request.hardware.empty() ? read_hardware(request.hardware)
                                                : find_hardware(!request.gpu.empty() ? request.gpu
                                                                : cpu                ? "cpu"
                                                                                     : "h100-80g");
  require(deck.run.device == DeviceChoice::automatic || cpu != hardware.gpu, ExitCode::configuration,
          "run.device {} but {} is a {}: change run.device or choose other hardware", cpu ? "cpu" : "cuda",
          hardware.name, hardware.gpu ? "GPU" : "CPU");
  if (request.ranks_a_node > 0) hardware.ranks_a_node = request.ranks_a_node;
  return hardware;
}

/// The deck for so many ranks; keys of features that are not built yet are planned all the same.
Deck deck_of(const Request& request, int ranks) {
  Deck deck = read_deck(request.deck.path, request.deck.overrides, {.ranks = ranks});
  if (deck.model.vocab > 0) return deck;
  require(deck.data.tokenizer.file == "bytes", ExitCode::configuration,
          "{}: model.vocab: a plan opens no tokenizer file: give model.vocab or a model.preset", request.deck.path);
  deck.model.vocab = make_tokenizer(deck.data.tokenizer)->vocab();
  return deck;
}

/// Error(configuration) if nothing fits.
int print_search(const Request& request, const Deck& deck, int ranks, const Hardware& hardware) {
  const Search search = search_layouts(deck, ranks, hardware);
  fmt::print("{}", search_text(search, deck, ranks, hardware, request.rows));
  std::fflush(stdout);
  require(!search.ranked.empty(), ExitCode::configuration,
          "{}: no layout fits {} ranks of {}: more ranks, a shorter model.seq_len or a smaller model are needed",
          request.deck.path, ranks, hardware.name);
  if (request.take == 0) return 0;
  require(request.take > 0 && request.take <= std::ssize(search.ranked), ExitCode::usage,
          "plan: --take {}: there are {} layouts", request.take, search.ranked.size());
  const Deck& chosen = search.ranked[static_cast<std::size_t>(request.take) - 1].deck;
  make_directories(request.to);
  const std::string path = request.to + "/deck.yaml";
  atomic_write(path, to_yaml(chosen));
  atomic_write(request.to + "/job.sh", job_script(chosen, path, ranks, hardware));
  fmt::print("\nwrote {} and {}/job.sh\n", path, request.to);
  return 0;
}

}  // namespace

int tool_plan(const MpiComm&, Arguments arguments) {
  const std::optional<Request> request = parse(arguments);
  if (!request) return 0;
  const Hardware hardware = hardware_of(*request, read_deck(request->deck.path, request->deck.overrides));
  const int ranks = request->ranks > 0 ? request->ranks : request->nodes * hardware.ranks_a_node;
  const Deck deck =
      resolve(deck_of(*request, request->search ? 0 : ranks), 0, hardware.gpu ? DeviceKind::cuda : DeviceKind::cpu);
  if (request->search) return print_search(*request, deck, ranks, hardware);
  const LayoutPlan plan = plan_layout(deck, ranks, hardware, PlanDepth::whole);
  fmt::print("{}", request->json ? plan_json(plan) + "\n" : plan_text(plan, request->deck.path) + faster(plan));
  std::fflush(stdout);
  if (plan.fits) return 0;
  const std::string remedy = remedies(plan);
  fail(ExitCode::configuration, "{}: {} ranks of {} are too small for this layout: {} needs {:.1f} GB of {:.1f}\n{}",
       request->deck.path, ranks, hardware.name, plan.largest().name,
       static_cast<double>(plan.largest().peak_bytes()) / 1e9, (hardware.memory - hardware.reserved) / 1e9,
       remedy.empty() ? "  no change of one key makes it fit: more ranks are needed"
                      : "changes that make it fit:\n" + remedy);
}

}  // namespace llmtrain
