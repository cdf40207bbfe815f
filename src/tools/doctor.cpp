// SPDX-License-Identifier: Apache-2.0
/// `llmtrain doctor`: the devices of this job and the links between them, measured, before a long run trusts them.
#include "llmtrain/tools/doctor.hpp"

#include <fmt/format.h>

#include <optional>

#include "llmtrain/backend/software.hpp"
#include "llmtrain/base/agree.hpp"
#include "llmtrain/driver/launch.hpp"
#include "llmtrain/tools/options.hpp"

namespace llmtrain {

namespace {

struct Request {
  NamedDeck deck;  // may be none
  double slow = 0.8;
  std::int64_t mebibytes = 0;  // 0: by device
  int repeats = 10;
};

/// Nothing after --help was printed.
std::optional<Request> parse(const MpiComm& world, Arguments arguments) {
  namespace po = boost::program_options;
  Request r;
  po::options_description options("Options");
  options.add_options()("help,h", "show this")  //
      ("slow", po::value(&r.slow)->value_name("PART"),
       "name what has less than this part of the median speed of its like, and exit with 1 (default: 0.8)")  //
      ("mebibytes", po::value(&r.mebibytes)->value_name("N"),
       "size of messages and tensors that are sent (default: 256 between GPUs, else 16)")  //
      ("repeats", po::value(&r.repeats)->value_name("N"), "goes whose median counts (default: 10)");
  const CommandLine line = parse_options("doctor", arguments, options);
  if (line.options.contains("help")) {
    if (world.rank() == 0) fmt::print("{}", tool_usage("doctor", options));
    return std::nullopt;
  }
  require(r.slow >= 0 && r.slow <= 1 && r.mebibytes >= 0 && r.mebibytes <= 16384 && r.repeats >= 1, ExitCode::usage,
          "doctor: --slow must be from 0 to 1, --mebibytes at most 16384, --repeats at least 1");
  r.deck = named_deck(line.words);
  return r;
}

}  // namespace

int tool_doctor(const MpiComm& world, Arguments arguments) {
  std::optional<Request> request;
  agree(world, [&] { request = parse(world, arguments); });
  if (!request) return 0;
  const bool by_deck = !request->deck.path.empty();
  const Deck deck =
      by_deck ? read_shared_deck(request->deck.path, request->deck.overrides, world, {.ranks = world.size()}) : Deck{};
  const std::unique_ptr<Device> device = make_device(deck.run, world, world.split_by_node());
  const bool gpu = device->kind() == DeviceKind::cuda;
  const DType precision = by_deck ? data_dtype(deck.precision.compute) : gpu ? DType::bf16 : DType::fp32;
  const std::int64_t mebibytes = request->mebibytes > 0 ? request->mebibytes : gpu ? 256 : 16;
  const Health health =
      examine(world, Topology(deck, world.size()), *device, precision, mebibytes << 20, request->repeats);
  const std::vector<std::string> found = ailments(health, request->slow);
  if (world.rank() == 0) {
    if (gpu) fmt::print("{}\n", cuda_software());
    fmt::print("{}\n", health_report(health));
    for (const std::string& line : found) fmt::print("{}\n", line);
    if (found.empty()) {
      fmt::print("nothing has less than {:.0f}% of the median speed of its like\n", 100 * request->slow);
    }
  }
  return static_cast<int>(found.empty() ? ExitCode::done : ExitCode::comparison_failed);
}

}  // namespace llmtrain
