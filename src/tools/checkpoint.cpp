// SPDX-License-Identifier: Apache-2.0
/// `llmtrain checkpoint ACTION`: what works on saved checkpoints, with one process and no MPI.
#include "llmtrain/tools/tool.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <limits>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "checkpoint_actions.hpp"
#include "llmtrain/base/error.hpp"
#include "llmtrain/checkpoint/folders.hpp"
#include "llmtrain/checkpoint/geometry.hpp"
#include "llmtrain/checkpoint/loader.hpp"
#include "llmtrain/checkpoint/saver.hpp"
#include "llmtrain/tools/options.hpp"

namespace llmtrain {

namespace {

namespace fs = std::filesystem;
namespace po = boost::program_options;

constexpr std::int64_t window = std::int64_t{1} << 20;  // elements compared at once

const MpiComm alone;  // null: these programs are one process

/// What the command line asks for.
struct Request {
  std::vector<std::string> paths;
  bool tensors = false;
  bool deck = false;
  std::int64_t keep = 0;  ///< 0: not given
};

/// One action. To add one: a row in the table at the end of this file.
struct Action {
  const char* name;
  const char* arguments;
  const char* meaning;
  std::size_t paths;    ///< how many it takes
  const char* options;  ///< those it takes, each followed by a blank
  int (*run)(const Request& request);
};

std::span<const Action> actions();

/// Actions with options and help of their own.
struct Exchange {
  const char* name;
  const char* arguments;
  const char* meaning;
  int (*run)(Arguments arguments);
};

constexpr std::array exchanges{
    Exchange{"export", "PATH FOLDER", "write a step as a Hugging Face model [--help]", checkpoint_export},
    Exchange{"import", "FOLDER CHECKPOINTS", "make a step 0 of a Hugging Face model [--help]", checkpoint_import},
    Exchange{"consolidate", "PATH FILE", "write a step's weights into one 16-bit file [--help]",
             checkpoint_consolidate},
};

std::string usage() {
  std::string text;
  const auto add = [&](const auto& action) {
    text += fmt::format("{} llmtrain checkpoint {:<26} {}\n", text.empty() ? "usage:" : "      ",
                        fmt::format("{} {}", action.name, action.arguments), action.meaning);
  };
  for (const Action& action : actions()) add(action);
  for (const Exchange& exchange : exchanges) add(exchange);
  return text +
         "PATH is a step folder, or a checkpoints folder: its newest step, or for ls and verify all of its steps.\n";
}

/// Null for --help.
const Action* parse(std::span<const std::string> args, Request& request) {
  po::options_description options;
  options.add_options()("help,h", "")("tensors", po::bool_switch(&request.tensors))(
      "deck", po::bool_switch(&request.deck))("keep", po::value(&request.keep));
  const auto [values, words] = parse_options("checkpoint", args, options);
  if (values.contains("help")) return nullptr;
  std::vector<std::string> names;
  for (const Action& action : actions()) names.emplace_back(action.name);
  for (const Exchange& exchange : exchanges) names.emplace_back(exchange.name);
  const std::string known = fmt::format("{}", fmt::join(names, ", "));
  require(!words.empty(), ExitCode::usage, "checkpoint: an action is needed: {}", known);
  const auto found = std::ranges::find(actions(), words.front(), &Action::name);
  require(found != actions().end(), ExitCode::usage, "checkpoint: unknown action '{}'; use one of {}", words.front(),
          known);
  request.paths.assign(words.begin() + 1, words.end());
  require(request.paths.size() == found->paths, ExitCode::usage, "checkpoint {}: {} expected, {} given", found->name,
          found->paths == 2 ? "two paths" : "one path", request.paths.size());
  for (const auto& [name, value] : values) {
    if (value.defaulted()) continue;
    require(std::string_view(found->options).find("--" + name + " ") != std::string_view::npos, ExitCode::usage,
            "checkpoint {} takes no --{}", found->name, name);
  }
  return &*found;
}

std::string readable(std::int64_t bytes) {
  constexpr const char* units[] = {"B", "KB", "MB", "GB", "TB", "PB"};
  auto value = static_cast<double>(bytes);
  std::size_t unit = 0;
  for (; value >= 1000 && unit + 1 < std::size(units); ++unit) value /= 1000;
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.4g} {}", value, units[unit]);
}

int list(const Request& request) {
  const std::string& text = request.paths.front();
  for (const fs::path& folder : named_step_folders(text)) {
    const std::string name = folder.filename().string();
    try {
      const Manifest manifest = read_manifest(folder);
      fmt::print("{}  step {}  {} files  {}  run {}\n", name, manifest.state.step, manifest.files.size(),
                 readable(manifest.bytes()), manifest.state.run_id);
    } catch (const Error& error) {
      fmt::print("{}  damaged: {}\n", name, error.what());
    }
  }
  for (const fs::path& folder : list_step_folders(text).unfinished) {
    fmt::print("{}  unfinished\n", folder.filename().string());
  }
  return 0;
}

int info(const Request& request) {
  const fs::path folder = named_step_folders(request.paths.front()).front();
  const Manifest manifest = read_manifest(folder);
  std::int64_t parameters = 0;
  for (const ManifestTensor& tensor : manifest.tensors) {
    if (tensor.name.starts_with("/model/")) parameters += checked_volume(tensor.shape);
  }
  fmt::print("folder      {}\nstep        {}\nrun id      {}\nsamples     {}\nwriters     {}\nfiles       {}\n",
             folder.string(), manifest.state.step, manifest.state.run_id, manifest.state.samples, manifest.writers,
             manifest.files.size());
  fmt::print("size        {}\ntensors     {}\nparameters  {}\n", readable(manifest.bytes()), manifest.tensors.size(),
             parameters);
  for (const auto& [name, value] : manifest.state.counters) fmt::print("{:<11} {}\n", name, value);
  for (const auto& [name, value] : manifest.state.identity) fmt::print("{:<11} {}\n", name, value);
  if (request.tensors) {
    for (const ManifestTensor& tensor : manifest.tensors) {
      fmt::print("{} {} [{}]\n", tensor.name, name_of(tensor.dtype), fmt::join(tensor.shape, ", "));
    }
  }
  if (request.deck) fmt::print("{}", read_checkpoint_state(alone, open_checkpoint(alone, folder)).deck);
  return 0;
}

/// Problems of one step: its files, the digests that its writer took from memory, and if those are right what HDF5 says.
std::vector<std::string> verify_step(const fs::path& folder) {
  Examination examination = examine_checkpoint(alone, folder, Files::all, Damage::by_tensor);
  for (const std::string& note : examination.notes) fmt::print("note: {}\n", note);
  if (!examination.problems.empty()) return examination.problems;
  try {
    const CheckpointReader reader(alone, examination.checkpoint);
    return examination.checkpoint.manifest.has_places() ? reader.check_headers() : reader.check_pieces();
  } catch (const Error& error) {
    return {error.what()};
  }
}

/// Whether `latest` names a step. That it names an older one is what a crash right after a save leaves.
bool verify_latest(const fs::path& checkpoints_dir, const std::string& newest) {
  const std::string latest = read_latest(checkpoints_dir);
  if (latest.empty() || !fs::is_directory(checkpoints_dir / latest)) {
    fmt::print("latest: it names {}, not {}; the next save writes it again\n", latest.empty() ? "no step" : latest,
               newest);
    return false;
  }
  if (latest != newest) fmt::print("note: latest names {}; the newest step is {}\n", latest, newest);
  return true;
}

int verify(const Request& request) {
  const std::string& text = request.paths.front();
  std::vector<std::string> damaged;
  const std::vector<fs::path> folders = named_step_folders(text);
  const fs::path parent = folders.front().parent_path();
  if (fs::equivalent(parent, text) && !verify_latest(parent, folders.front().filename().string())) {
    damaged.emplace_back("latest");
  }
  for (const fs::path& folder : folders) {
    const std::string name = folder.filename().string();
    const std::vector<std::string> problems = verify_step(folder);
    for (const std::string& problem : problems) fmt::print("{}: {}\n", name, problem);
    if (problems.empty()) {
      fmt::print("{}: good\n", name);
    } else {
      damaged.push_back(name);
    }
  }
  std::fflush(stdout);
  require(damaged.empty(), ExitCode::checkpoint_damaged, "damaged in {}: {}", text, fmt::join(damaged, ", "));
  return 0;
}

/// Element `i` of a buffer as a number, for messages and errors.
double value_at(DType dtype, const std::byte* data, std::int64_t i) {
  const std::byte* at = data + i * size_of(dtype);
  const auto load = [at](auto value) {
    std::memcpy(&value, at, sizeof value);
    return value;
  };
  switch (dtype) {
    case DType::fp64: return load(double{});
    case DType::fp32: return load(float{});
    case DType::int64: return static_cast<double>(load(std::int64_t{}));
    case DType::int32: return load(std::int32_t{});
    case DType::uint8: return load(std::uint8_t{});
    case DType::bf16: {
      const std::uint32_t bits = std::uint32_t{load(std::uint16_t{})} << 16;
      float value = 0;
      std::memcpy(&value, &bits, sizeof value);
      return value;
    }
    case DType::fp16:
    case DType::fp8_e4m3:
    case DType::fp8_e5m2: break;
  }
  return std::numeric_limits<double>::quiet_NaN();
}

struct Difference {
  std::int64_t count = 0;   ///< elements with other bits
  std::int64_t first = -1;  ///< flat index of the first
  double a = 0;             ///< its value in each
  double b = 0;
  double max_error = 0;  ///< NaN if one of them is not a number
};

/// A part [begin, end) of a whole tensor, read row-major.
Piece part_of(const ManifestTensor& tensor, std::int64_t begin, std::int64_t end, void* data) {
  return {tensor.name,  tensor.dtype, tensor.shape, std::vector<std::int64_t>(tensor.shape.size(), 0),
          tensor.shape, begin,        end,          data};
}

Difference compare(const CheckpointReader& a, const CheckpointReader& b, const ManifestTensor& tensor) {
  Difference difference;
  const std::int64_t total = checked_volume(tensor.shape);
  const std::int64_t width = size_of(tensor.dtype);
  const auto bytes = static_cast<std::size_t>(width);
  std::vector<std::byte> left(static_cast<std::size_t>(std::min(total, window)) * bytes);
  std::vector<std::byte> right(left.size());
  for (std::int64_t begin = 0; begin < total; begin += window) {
    const std::int64_t end = std::min(total, begin + window);
    const Piece from_a = part_of(tensor, begin, end, left.data());
    const Piece from_b = part_of(tensor, begin, end, right.data());
    a.read(std::span(&from_a, 1));
    b.read(std::span(&from_b, 1));
    for (std::int64_t i = 0; i < end - begin; ++i) {
      if (std::memcmp(left.data() + i * width, right.data() + i * width, bytes) == 0) continue;
      const double in_a = value_at(tensor.dtype, left.data(), i);
      const double in_b = value_at(tensor.dtype, right.data(), i);
      if (difference.count++ == 0) {
        difference.first = begin + i;
        difference.a = in_a;
        difference.b = in_b;
      }
      const double error = std::abs(in_a - in_b);
      if (std::isnan(error) || error > difference.max_error) difference.max_error = error;
    }
  }
  return difference;
}

/// Index of a flat position as "[2, 5]".
std::string index_text(const ManifestTensor& tensor, std::int64_t flat) {
  std::vector<std::int64_t> index(tensor.shape.size());
  for (std::size_t i = index.size(); i-- > 0;) {
    index[i] = flat % tensor.shape[i];
    flat /= tensor.shape[i];
  }
  return fmt::format("{}", index);
}

int diff(const Request& request) {
  const std::string& path_a = request.paths[0];
  const std::string& path_b = request.paths[1];
  const CheckpointReader a(alone, open_checkpoint(alone, path_a));
  const CheckpointReader b(alone, open_checkpoint(alone, path_b));
  std::int64_t differing = 0;
  const auto tell = [&differing](const std::string& line) {
    // Only the first is described in full; the rest is counted.
    if (differing++ == 0) fmt::print("first difference: {}\n", line);
  };
  double max_error = 0;
  std::string worst;
  for (const ManifestTensor& tensor : a.checkpoint().manifest.tensors) {
    const ManifestTensor* other = b.find(tensor.name);
    if (other == nullptr) {
      tell(fmt::format("{} is only in {}", tensor.name, path_a));
    } else if (other->dtype != tensor.dtype || other->shape != tensor.shape) {
      tell(fmt::format("{} is {} {} and {} {}", tensor.name, name_of(tensor.dtype), tensor.shape, name_of(other->dtype),
                       other->shape));
    } else if (const Difference found = compare(a, b, tensor); found.count > 0) {
      tell(fmt::format("{} at {}: {} and {}; {} of {} elements differ, by up to {}", tensor.name,
                       index_text(tensor, found.first), found.a, found.b, found.count, checked_volume(tensor.shape),
                       found.max_error));
      if (worst.empty() || std::isnan(found.max_error) || found.max_error > max_error) {
        max_error = found.max_error;
        worst = tensor.name;
      }
    }
  }
  for (const ManifestTensor& tensor : b.checkpoint().manifest.tensors) {
    if (a.find(tensor.name) == nullptr) tell(fmt::format("{} is only in {}", tensor.name, path_b));
  }
  const CheckpointState state_a = a.read_state();
  const CheckpointState state_b = b.read_state();
  if (state_a.step != state_b.step) tell(fmt::format("step {} and step {}", state_a.step, state_b.step));
  if (state_a.samples != state_b.samples || state_a.counters != state_b.counters ||
      state_a.identity != state_b.identity) {
    tell("samples, counters or digests of the data");
  }
  if (state_a.deck != state_b.deck) fmt::print("note: the decks differ\n");
  if (!worst.empty()) fmt::print("maximum error: {} in {}\n", max_error, worst);
  fmt::print("{}\n", differing == 0 ? "equal" : fmt::format("{} differences", differing));
  return differing == 0 ? 0 : static_cast<int>(ExitCode::comparison_failed);
}

/// Only the shards have to be right: checkpoint.h5 may be what is missing or damaged.
int index(const Request& request) {
  const fs::path folder = named_step_folders(request.paths.front()).front();
  const Examination examination = examine_checkpoint(alone, folder, Files::loaded);
  require(examination.problems.empty(), ExitCode::checkpoint_damaged, "checkpoint {} is damaged: {}", folder.string(),
          fmt::join(examination.problems, "; "));
  write_checkpoint_index(CheckpointReader(alone, examination.checkpoint));
  fmt::print("wrote {}\n", (folder / "checkpoint.h5").string());
  return 0;
}

int prune(const Request& request) {
  require(request.keep >= 1, ExitCode::usage, "checkpoint prune: say how many to keep with --keep N, at least 1");
  const fs::path folder = request.paths.front();
  require(fs::is_directory(folder), ExitCode::missing_input, "no checkpoints folder at {}", folder.string());
  for (const std::string& line : prune_checkpoints(folder, request.keep)) fmt::print("{}\n", line);
  return 0;
}

constexpr std::array table{
    Action{"ls", "PATH", "the steps of a checkpoints folder", 1, "", list},
    Action{"info", "PATH", "what a step holds [--tensors] [--deck]", 1, "--tensors --deck ", info},
    Action{"verify", "PATH", "read every byte and compare it with its digest", 1, "", verify},
    Action{"diff", "A B", "compare the tensors of two steps; exit 1 if they differ", 2, "", diff},
    Action{"prune", "PATH --keep N", "remove what is older than the N newest good steps", 1, "--keep ", prune},
    Action{"index", "PATH", "write checkpoint.h5 (virtual datasets) again", 1, "", index},
};

std::span<const Action> actions() { return table; }

}  // namespace

int tool_checkpoint(const MpiComm&, Arguments args) {
  for (const Exchange& exchange : exchanges) {
    if (!args.empty() && args[0] == exchange.name) return exchange.run(args.subspan(1));
  }
  Request request;
  const Action* const action = parse(args, request);
  if (action != nullptr) return action->run(request);
  fmt::print("{}", usage());
  return 0;
}

}  // namespace llmtrain
