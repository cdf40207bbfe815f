// SPDX-License-Identifier: Apache-2.0
/// `llmtrain verify DECK --dump FILE.h5`: the numbers of the first steps, for comparison with other programs.
#include <iostream>

#include "llmtrain/driver/dump.hpp"
#include "llmtrain/tools/options.hpp"

namespace llmtrain {

int tool_verify(const MpiComm& world, Arguments arguments) {
  namespace po = boost::program_options;
  std::string path;
  std::int64_t steps = 1;
  po::options_description options("Options");
  options.add_options()                                                                                         //
      ("help", "print this text")                                                                               //
      ("dump", po::value(&path)->value_name("FILE.h5"), "write tokens, loss, gradients and parameters, whole")  //
      ("steps", po::value(&steps)->value_name("K"), "steps to run (default 1)");
  po::options_description all;
  all.add(options).add_options()("deck", po::value<std::vector<std::string>>());
  po::positional_options_description positional;
  positional.add("deck", -1);
  const po::variables_map values = parse_options("verify", arguments, all, positional);
  if (values.count("help") != 0) {
    if (world.rank() == 0) std::cout << tool_usage("verify", options);
    return 0;
  }
  require(values.count("deck") != 0 && !path.empty(), ExitCode::usage,
          "verify: a deck and --dump FILE.h5 are needed (see llmtrain verify --help)");
  require(steps >= 1, ExitCode::usage, "verify: --steps must be at least 1");
  const auto deck = values["deck"].as<std::vector<std::string>>();
  Launch start = launch(deck[0], std::span(deck).subspan(1), world, Start::fresh);
  dump_steps(start, steps, path);
  return 0;
}

}  // namespace llmtrain
