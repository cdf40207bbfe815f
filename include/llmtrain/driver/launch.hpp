// SPDX-License-Identifier: Apache-2.0
/// From a deck's name to everything a run needs before memory is taken: deck, tokenizer, data, layout, device. Mistakes are
/// found in this order and before any work; every rank throws the same error.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "llmtrain/checkpoint/loader.hpp"
#include "llmtrain/config/check.hpp"
#include "llmtrain/data/loader.hpp"
#include "llmtrain/data/training_data.hpp"
#include "llmtrain/driver/dry_run.hpp"
#include "llmtrain/driver/run_lock.hpp"
#include "llmtrain/driver/watchdog.hpp"
#include "llmtrain/tokenizer/tokenizer.hpp"

namespace llmtrain {

/// The checkpoint that a run goes on from.
struct Resumed {
  Checkpoint checkpoint;
  CheckpointState state;
};

struct Launch {
  Deck deck;                           ///< resolved
  std::unique_ptr<Watchdog> watchdog;  ///< of a run that trains; null: nobody watches
  std::unique_ptr<Tokenizer> tokenizer;
  std::optional<Resumed> resumed;
  TrainingData data;
  Place place;
  std::unique_ptr<Device> device;
  std::vector<std::string> warnings;            ///< for the log
  std::vector<std::string> protect;             ///< damaged step folders, never pruned
  std::map<std::string, std::string> identity;  ///< digests of tokenizer and training data, for checkpoints
  std::vector<std::unique_ptr<RunLock>> locks;  ///< on rank 0, of the folders that the run writes

  /// The id whose next token has no weight in the loss (data.mask_eod), or LoaderShape::no_token.
  std::int32_t masked_token() const;
};

/// What start-up looks for besides the deck.
enum class Start {
  resume,         ///< a checkpoint, as checkpoint.resume says; its load proves its files
  resume_proven,  ///< the same, with its files proven first: a damaged one is skipped
  fresh,          ///< the initial state
};

/// Reads and checks the deck (78), finds the checkpoint (83, 84, 66), opens the data (66, 65), compares it with the
/// checkpoint's (84). On a resume the order of samples stays that of the stored data.samples. To resume, folders that
/// exist are locked before anybody looks into them (73). Collective over `world`.
Launch launch(const std::string& deck_path, std::span<const std::string> overrides, const MpiComm& world, Start start);

/// This rank's device, as `run` asks for it. Collective over `world`, of which `node` has the ranks of this node.
std::unique_ptr<Device> make_device(const RunConfig& run, const MpiComm& world, const MpiComm& node);

/// The deck as all ranks read it: its text is rank 0's. Throws AgreedError for what `checks` refuses. Collective.
Deck read_shared_deck(const std::string& path, std::span<const std::string> overrides, const MpiComm& world,
                      const DeckChecks& checks);

/// The loader of a place over a dataset.
std::unique_ptr<Loader> make_loader(const Deck& deck, const Place& place, std::shared_ptr<const Dataset> dataset,
                                    std::int32_t masked_token);
/// This rank's loader over a dataset of the launch.
std::unique_ptr<Loader> make_loader(const Launch& launch, std::shared_ptr<const Dataset> dataset);

/// "What will this run do?": device and what is beneath it, layout, parameters, tokens a step, memory, peak, files.
std::string summary(const Launch& launch, const Measured& measured);

}  // namespace llmtrain
