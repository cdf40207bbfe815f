// SPDX-License-Identifier: Apache-2.0
/// `llmtrain data`: its command line.
#include <algorithm>
#include <array>
#include <limits>
#include <string_view>

#include <fmt/format.h>

#include "data_commands.hpp"
#include "llmtrain/tools/options.hpp"

namespace llmtrain {
namespace {

namespace po = boost::program_options;

constexpr const char* usage =
    "usage: llmtrain data info PREFIX... [--seq-len S [--samples N]]    documents, tokens, lengths, origin; with\n"
    "                                       a sample's length also samples and passes over the data\n"
    "       llmtrain data dump PREFIX [--document D] [--tokenizer T]    ids of documents, and their text\n"
    "       llmtrain data verify PREFIX... [--vocab V]    read every token; name what is wrong or odd\n"
    "       llmtrain data merge PREFIX... --output P      one set of several, in this order\n"
    "       llmtrain data split PREFIX --output P [--shares 98,2,0]    P_train, P_valid, P_test by documents\n"
    "       llmtrain data at DECK --step N [block.key=value ...]       which documents step N trains on\n"
    "PREFIX is a .bin/.idx pair without its ending.\n"
    "Exit codes: 0 sound or done, 64 usage, 65 bad data, 66 missing, 73 cannot create, 74 read or write failed,\n"
    "78 a deck that asks for something impossible.\n";

struct Action {
  std::string_view name;
  std::size_t least_words;
  std::size_t most_words;
  std::string_view options;  ///< that belong to it
  int (*run)(const DataRequest&);
};

constexpr std::size_t any = std::numeric_limits<std::size_t>::max();
constexpr std::array actions{
    Action{"info", 1, any, "seq-len samples", data_info}, Action{"dump", 1, 1, "document tokenizer", data_dump},
    Action{"verify", 1, any, "vocab", data_verify},       Action{"merge", 1, any, "output", data_merge},
    Action{"split", 1, 1, "output shares", data_split},   Action{"at", 1, any, "step", data_at},
};

const Action& find_action(const std::string& name) {
  const auto found = std::find_if(actions.begin(), actions.end(), [&](const Action& a) { return a.name == name; });
  require(found != actions.end(), ExitCode::usage,
          "data: unknown action '{}'; use info, dump, verify, merge, split or at (see llmtrain data --help)", name);
  return *found;
}

}  // namespace

int tool_data(const MpiComm&, Arguments arguments) {
  DataRequest request;
  po::options_description options;
  options.add_options()                             //
      ("help,h", "")                                //
      ("output", po::value(&request.output))        //
      ("shares", po::value(&request.shares))        //
      ("tokenizer", po::value(&request.tokenizer))  //
      ("vocab", po::value(&request.vocab))          //
      ("document", po::value(&request.document))    //
      ("step", po::value(&request.step))            //
      ("seq-len", po::value(&request.seq_len))      //
      ("samples", po::value(&request.samples));
  const CommandLine line = parse_options("data", arguments, options);
  if (line.options.contains("help")) {
    fmt::print("{}", usage);
    return 0;
  }
  require(!line.words.empty(), ExitCode::usage, "data: say info, dump, verify, merge, split or at (see --help)");
  const Action& action = find_action(line.words.front());
  request.words.assign(line.words.begin() + 1, line.words.end());
  require(request.words.size() >= action.least_words && request.words.size() <= action.most_words, ExitCode::usage,
          "data {}: {} given (see llmtrain data --help)", action.name,
          request.words.empty() ? "no name" : "more than one name");
  for (const auto& [name, value] : line.options) {
    require(action.options.find(name) != std::string_view::npos, ExitCode::usage,
            "data {}: --{} does not belong to it (see llmtrain data --help)", action.name, name);
  }
  return action.run(request);
}

}  // namespace llmtrain
