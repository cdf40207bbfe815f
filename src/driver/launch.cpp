// SPDX-License-Identifier: Apache-2.0
/// Start-up checks in their order: deck, checkpoint, data, device.
#include "llmtrain/driver/launch.hpp"

#include <map>

#include "llmtrain/base/agree.hpp"
#include "llmtrain/base/beacon.hpp"
#include "llmtrain/config/read.hpp"
#include "llmtrain/driver/resolve.hpp"
#include "llmtrain/driver/resume.hpp"
#include "llmtrain/driver/run_folder.hpp"
#include "llmtrain/model/shapes.hpp"
#include "llmtrain/topology/placement.hpp"

namespace llmtrain {

namespace {

/// The deck's text from rank 0, so that it need not exist on every node.
std::string share_deck_text(const std::string& path, std::span<const std::string> overrides, const MpiComm& world) {
  std::string text;
  agree_on_root(world, [&] {
    require_overrides(overrides);
    text = load_deck_text(path);
  });
  return world.broadcast(text, 0);
}

/// What run.device asks for; auto is a GPU where every rank sees one. Collective.
DeviceKind device_kind(DeviceChoice choice, const MpiComm& world) {
  if (choice == DeviceChoice::automatic) {
    return world.all_reduce(std::int64_t{why_no_cuda().empty()}, MpiOp::min) == 1 ? DeviceKind::cuda : DeviceKind::cpu;
  }
  return choice == DeviceChoice::cuda ? DeviceKind::cuda : DeviceKind::cpu;
}

}  // namespace

std::unique_ptr<Device> make_device(const RunConfig& run, const MpiComm& world, const MpiComm& node) {
  const DeviceKind kind = device_kind(run.device, world);
  std::unique_ptr<Device> device;
  const int threads = thread_count(run.threads, node);
  agree(world, [&] {
    device = kind == DeviceKind::cuda ? make_cuda_device({node.rank(), node.size(), run.share_gpu, run.deterministic})
                                      : make_cpu_device(threads);
  });
  return device;
}

namespace {

/// Number of each rank's node, in order of first appearance. Collective.
std::vector<int> node_numbers(const MpiComm& world, const MpiComm& node) {
  const std::string leader = node.broadcast(std::to_string(world.rank()), 0);
  std::map<std::string, int> numbers;
  std::vector<int> nodes;
  for (const std::string& name : world.all_gather(leader)) {
    nodes.push_back(numbers.try_emplace(name, static_cast<int>(numbers.size())).first->second);
  }
  return nodes;
}

/// Finds the checkpoint and keeps what belongs to it; refuses one of another run.
void find_resume_point(Launch& out, bool samples_given, Files files) {
  const MpiComm& world = out.place.world;
  Resume found = find_checkpoint(world, out.deck.checkpoint.resume, out.deck.checkpoint.dir, files);
  for (const std::string& note : found.notes) {
    out.warnings.push_back(note.substr(note.starts_with("warning: ") ? 9 : 0));  // the log says so itself
  }
  out.protect = std::move(found.damaged);
  if (!found.checkpoint) return;
  CheckpointState state = read_checkpoint_state(world, *found.checkpoint);
  const std::string name = found.checkpoint->folder.string();
  agree(world, [&] {
    // The order of what is left belongs to the stored horizon, unless the deck asks for another one by name.
    if (!samples_given) out.deck.data.samples = state.samples;
    const std::vector<KeyChange> changes = key_changes(parse_deck(state.deck, name + ": deck"), out.deck);
    require_allowed(changes, name);
    for (const KeyChange& change : changes) {
      out.warnings.push_back(
          fmt::format("{} was {} in the checkpoint and is {} now", change.key, change.stored, change.now));
    }
  });
  out.protect.push_back(found.checkpoint->folder.filename().string());
  out.resumed = Resumed{std::move(*found.checkpoint), std::move(state)};
}

/// Digests of what the run reads, against those of the checkpoint. A change must be allowed by the name of its key.
void identify(Launch& out) {
  agree_on_root(out.place.world, [&] {
    out.identity["tokenizer"] = out.tokenizer->digest();
    out.identity["data"] = out.data.train->fingerprint();
    if (!out.resumed) return;
    const std::string name = out.resumed->checkpoint.folder.string();
    for (const auto& [what, key] : {std::pair{"tokenizer", "data.tokenizer"}, std::pair{"data", "data.train"}}) {
      const auto stored = out.resumed->state.identity.find(what);
      if (stored == out.resumed->state.identity.end() || stored->second == out.identity[what]) continue;
      require(is_allowed(key, out.deck), ExitCode::checkpoint_incompatible,
              "{} was trained with other contents of {} (digest {}, now {}); restore them, or allow the change with "
              "checkpoint.allow: [{}]",
              name, key, stored->second, out.identity[what], key);
      out.warnings.push_back(
          fmt::format("{} has other contents than in the checkpoint, as checkpoint.allow says", key));
    }
  });
}

}  // namespace

std::int32_t Launch::masked_token() const {
  return deck.data.mask_eod ? tokenizer->eod().value() : LoaderShape::no_token;
}

Launch launch(const std::string& deck_path, std::span<const std::string> overrides, const MpiComm& world, Start start) {
  const Beacon::Range range("launch");
  const std::string text = share_deck_text(deck_path, overrides, world);
  Deck written;
  std::unique_ptr<Tokenizer> tokenizer;
  agree(world, [&] {
    written = parse_deck(text, deck_path, overrides, {.ranks = world.size(), .data = true});
    tokenizer = make_tokenizer(written.data.tokenizer);
    require(
        !written.data.mask_eod || tokenizer->eod().has_value(), ExitCode::configuration,
        "data.mask_eod true, but data.tokenizer {} has no end-of-document token: name it with eod, or leave mask_eod "
        "false",
        written.data.tokenizer.file);
  });
  const Deck resolved = resolve(written, tokenizer->vocab(), device_kind(written.run.device, world));
  const RunConfig& run = resolved.run;
  auto watchdog = start == Start::fresh ? nullptr : std::make_unique<Watchdog>(world, run.dir, run.hang_timeout);
  const MpiComm node = world.split_by_node();
  Launch out{.deck = resolved,
             .watchdog = std::move(watchdog),
             .tokenizer = std::move(tokenizer),
             .resumed = {},
             .data = {},
             .place = {Topology(written, world.size(), node_numbers(world, node)), world.rank(), world},
             .device = make_device(run, world, node),
             .warnings = {},
             .protect = {},
             .identity = {},
             .locks = {}};
  if (resolved.precision.linear == LinearProducts::fp8) {
    agree(world, [&] {
      require(out.device->multiplies_fp8(), ExitCode::configuration,
              "precision.linear fp8 needs a GPU of compute capability 8.9 or newer, and {} is none: leave it out",
              out.device->describe());
    });
  }
  const std::string caution = out.device->caution(data_dtype(out.deck.precision.compute));
  const std::string split = split_tensor_groups(out.place.topology);
  for (const std::string& warning : {caution, split}) {
    if (!warning.empty()) out.warnings.push_back(warning);
  }
  if (start != Start::fresh) {
    lock_folders(out, Folders::existing);
    find_resume_point(out, written.data.samples > 0, start == Start::resume ? Files::at_load : Files::loaded);
  }
  const auto memory = std::make_shared<IndexMemory>();
  agree(world, [&] {
    const Deck& deck = out.deck;
    out.data = open_training_data(deck.data, deck.run, deck.model.seq_len, deck.schedule.global_batch, deck.model.vocab,
                                  out.tokenizer->digest(), memory);
  });
  memory->build(world, node);
  out.warnings.insert(out.warnings.end(), out.data.warnings.begin(), out.data.warnings.end());
  if (start != Start::fresh) identify(out);
  return out;
}

Deck read_shared_deck(const std::string& path, std::span<const std::string> overrides, const MpiComm& world,
                      const DeckChecks& checks) {
  const std::string text = share_deck_text(path, overrides, world);
  Deck deck;
  agree(world, [&] { deck = parse_deck(text, path, overrides, checks); });
  return deck;
}

std::unique_ptr<Loader> make_loader(const Deck& deck, const Place& place, std::shared_ptr<const Dataset> dataset,
                                    std::int32_t masked_token) {
  return std::make_unique<Loader>(
      std::move(dataset), LoaderShape{deck.schedule.micro_batch, deck.model.seq_len, deck.schedule.global_batch,
                                      place.topology.index(data_axes, place.rank), place.topology.size(data_axes),
                                      deck.model.vocab, masked_token, deck.data.document_mask});
}

std::unique_ptr<Loader> make_loader(const Launch& launch, std::shared_ptr<const Dataset> dataset) {
  return make_loader(launch.deck, launch.place, std::move(dataset), launch.masked_token());
}

}  // namespace llmtrain
