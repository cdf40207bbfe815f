// SPDX-License-Identifier: Apache-2.0
/// `llmtrain calibrate`: measures the constants of the planner's time model here and writes them as a hardware file.
#include <fmt/format.h>

#include <cstdio>

#include "llmtrain/base/agree.hpp"
#include "llmtrain/base/files.hpp"
#include "llmtrain/driver/resolve.hpp"
#include "llmtrain/plan/calibrate.hpp"
#include "llmtrain/tools/options.hpp"

namespace llmtrain {

namespace {

struct Request {
  std::string output = "hardware.yaml", name = "this-machine";
  int threads = 0, repeats = 10;
  bool help = false;
};

Request parse(const MpiComm& world, Arguments arguments) {
  namespace po = boost::program_options;
  Request r;
  po::options_description options("Options");
  options.add_options()("help,h", "show this")  //
      ("output", po::value(&r.output)->value_name("FILE"), "the file to write (default: hardware.yaml)")(
          "name", po::value(&r.name)->value_name("NAME"), "what plans call the machine")(
          "threads", po::value(&r.threads)->value_name("N"), "OpenMP threads of a rank, as run.threads")(
          "repeats", po::value(&r.repeats)->value_name("N"), "steps of which the fastest times count (default: 10)");
  r.help = parse_options("calibrate", arguments, options, Words::refused).options.contains("help");
  if (r.help && world.rank() == 0) fmt::print("{}", tool_usage("calibrate", options));
  require(r.repeats >= 1 && r.threads >= 0, ExitCode::usage, "calibrate: --repeats must be at least 1, --threads 0");
  return r;
}

}  // namespace

int tool_calibrate(const MpiComm& world, Arguments arguments) {
  Request request;
  agree(world, [&] { request = parse(world, arguments); });
  if (request.help) return 0;
  const std::unique_ptr<Device> device = make_cpu_device(thread_count(request.threads, world.split_by_node()));
  const Calibration found = calibrate(world, *device, request.name, request.repeats);
  agree_on_root(world, [&] { atomic_write(request.output, to_yaml(found.hardware)); });
  if (world.rank() != 0) return 0;
  fmt::print(
      "{}: {}\nwrote {}; its predictions of steps it was not made from, against the sum of their operations' fastest "
      "times:\n{:<42} {:>6} {:>13} {:>13} {:>8}\n",
      found.hardware.name, found.hardware.source, request.output, "model", "ranks", "predicted, ms", "measured, ms",
      "off");
  for (const StepCheck& c : found.checks) {
    fmt::print("{:<42} {:>6} {:>13.2f} {:>13.2f} {:>+7.1f}%\n", c.deck, c.ranks, 1e3 * c.predicted, 1e3 * c.measured,
               100 * (c.predicted / c.measured - 1));
  }
  return 0;
}

}  // namespace llmtrain
