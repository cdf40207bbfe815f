// SPDX-License-Identifier: Apache-2.0
/// What the tests of layouts share: small models, data for them, and running a deck on the first ranks of the job.
#pragma once

#include <doctest/doctest.h>

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "llmtrain/base/agree.hpp"
#include "llmtrain/config/check.hpp"
#include "llmtrain/data/indexed_dataset_writer.hpp"
#include "llmtrain/data/source_dataset.hpp"
#include "llmtrain/driver/compare.hpp"
#include "llmtrain/driver/resolve.hpp"
#include "support/scratch_folder.hpp"

namespace llmtrain {

/// A part of a run of LayoutJob: a RunPart whose functions are told the ranks that run.
struct JobPart {
  std::int64_t first = 0;
  std::function<void(const MpiComm&members, Parts&parts)> begin, end;
  std::shared_ptr<const Dataset> data = nullptr;  ///< instead of the job's own
};

/// A job in which decks run one after the other, each on its first ranks.
class LayoutJob {
 public:
  LayoutJob() {
    if (world.rank() == 0) folder_ = std::make_unique<ScratchFolder>();
    prefix_ = world.broadcast(folder_ ? folder_->path() : std::string(), 0) + "/ids";
  }
  ~LayoutJob() { world.barrier(); }  // others may still read the folder
  LayoutJob(const LayoutJob&) = delete;
  LayoutJob& operator=(const LayoutJob&) = delete;

  /// The numbers of a deck on the first `ranks` ranks; whole on rank 0, `layout` empty where this rank had no part. A
  /// failure that only one rank knows of ends the job: the others would wait for it.
  LayoutNumbers run(const Deck& deck, int ranks, std::int64_t steps, std::int32_t masked = LoaderShape::no_token,
                    const JobPart& job_part = {}) {
    const std::shared_ptr<const Dataset> data = job_part.data ? job_part.data : dataset(deck);
    world.barrier();  // a rank that has no part waits here, asleep, and not in split
    const MpiComm members = world.split(world.rank() < ranks ? 0 : -1, world.rank());
    if (!members) return {};
    const Place place{Topology(deck, ranks), members.rank(), members};
    RunPart part{job_part.first, nullptr, nullptr};
    if (job_part.begin) part.begin = [&](Parts& parts) { job_part.begin(members, parts); };
    if (job_part.end) part.end = [&](Parts& parts) { job_part.end(members, parts); };
    try {
      return run_layout({deck, place, *device_, data, masked, part}, steps);
    } catch (const AgreedError& error) {
      FAIL_CHECK(layout_text(deck, place.topology), ": ", std::string(error.what()));
      return {};
    } catch (const std::exception& error) {
      std::fprintf(stderr, "rank %d: %s: %s\n", world.rank(), layout_text(deck, place.topology).c_str(), error.what());
      world.abort(1);
    }
  }

  /// Checks that `a` agrees with `b`, where this rank has both.
  void check_agreement(const LayoutNumbers& a, const LayoutNumbers& b, Agreement agreement) {
    if (a.gradients.empty() || b.gradients.empty()) return;
    const std::vector<Check> checks = compare(a, b, agreement);
    const bool agree = first_failure(checks) == nullptr;
    CHECK_MESSAGE(agree, a.layout, "\nagainst ", b.layout, "\n", agree ? "" : report(checks));
    for (const Check& check : checks) {
      if (check.difference > 0)
        worst_[check.quantity] = std::max(worst_[check.quantity], check.difference / check.bound);
    }
  }

  /// On rank 0, the largest difference of each quantity so far in parts of its bound.
  std::string worst() const {
    std::string text = "largest differences in parts of their bounds:";
    for (const auto& [quantity, part] : worst_) text += fmt::format(" {} {:.2g};", quantity, part);
    return text;
  }

  const MpiComm world = MpiComm::world();

 private:
  /// Random ids below the deck's vocabulary; one file for each, written by rank 0.
  std::shared_ptr<const Dataset> dataset(const Deck& deck) {
    std::shared_ptr<const IndexedDataset>& source = sources_[deck.model.vocab];
    if (source == nullptr) {
      const std::string prefix = prefix_ + std::to_string(deck.model.vocab);
      agree_on_root(world, [&] {
        IndexedDatasetWriter writer(prefix, deck.model.vocab);
        std::mt19937_64 random(static_cast<std::uint64_t>(deck.model.vocab));
        for (int sequence = 0; sequence < 40; ++sequence) {
          std::vector<std::int32_t> ids(100);
          for (std::int32_t& id : ids)
            id = static_cast<std::int32_t>(random() % static_cast<std::uint64_t>(deck.model.vocab));
          writer.add_sequence(ids);
          writer.end_document();
        }
        writer.finish();
        publish(writer.files());
      });
      source = std::make_shared<const IndexedDataset>(prefix);
    }
    return std::make_shared<const SourceDataset>(source, SequenceRange{0, source->sequences()}, deck.model.seq_len,
                                                 deck.data.samples, deck.data.seed);
  }

  std::unique_ptr<ScratchFolder> folder_;  // on rank 0
  std::string prefix_;
  const std::unique_ptr<Device> device_ = make_cpu_device(1);
  std::map<std::int64_t, std::shared_ptr<const IndexedDataset>> sources_;
  std::map<std::string, double> worst_;
};

/// A number from the environment, by which a test is run in other ways than by default.
inline std::int64_t from_environment(const char* name, std::int64_t otherwise) {
  const char* const text = std::getenv(name);
  return text == nullptr ? otherwise : std::atoll(text);
}

/// True if a deck's rules allow it on this number of ranks.
inline bool fits(const Deck& deck, int ranks) {
  try {
    check_deck(deck, {.ranks = ranks});
    return true;
  } catch (const Error&) {
    return false;
  }
}

/// The same deck for one rank: no axis, no ZeRO, one micro-batch of the whole global batch, nothing computed again.
inline Deck serial(Deck deck) {
  deck.parallel = {};
  deck.parallel.zero = 0;
  deck.schedule.kind = ScheduleKind::one_f_one_b;
  deck.schedule.chunks = 1;
  deck.schedule.micro_batch = deck.schedule.global_batch;
  deck.schedule.recompute = Recompute::none;
  return deck;
}

}  // namespace llmtrain
