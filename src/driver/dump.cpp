// SPDX-License-Identifier: Apache-2.0
/// A short run whose tensors are put together whole on every rank and written by rank 0.
#include "llmtrain/driver/dump.hpp"

#include <optional>

#include "llmtrain/base/agree.hpp"
#include "llmtrain/checkpoint/h5_writer.hpp"
#include "llmtrain/data/loader.hpp"
#include "llmtrain/driver/gather.hpp"
#include "llmtrain/driver/step.hpp"
#include "llmtrain/driver/trainer.hpp"

namespace llmtrain {

namespace {

/// The dump file on rank 0; other ranks have none, and a failure is agreed.
class DumpFile {
 public:
  DumpFile(const MpiComm& world, const std::string& path) : world_(world) {
    agree_on_root(world_, [&] { file_.emplace(path); });
  }
  template <class Write>
  void write(Write write) {
    agree_on_root(world_, [&] { write(*file_); });
  }

 private:
  const MpiComm& world_;
  std::optional<H5Writer> file_;
};

/// Writes each section it is called with into `group`.
VisitSection write_into(DumpFile& file, const std::string& group) {
  return [&file, group](const Section& section, std::span<const double> values) {
    file.write([&](H5Writer& h5) { h5.write<double>(group + dataset_path(section.name), section.shape, values); });
  };
}

void write_batches(DumpFile& file, const Launch& launch, std::int64_t steps) {
  const Deck& deck = launch.deck;
  Loader loader(launch.data.train, {deck.schedule.global_batch, deck.model.seq_len, deck.schedule.global_batch, 0, 1,
                                    deck.model.vocab, launch.masked_token()});
  std::vector<std::int32_t> tokens, targets;
  std::vector<float> weights;
  for (std::int64_t n = 1; n <= steps; ++n) {
    const MicroBatch batch = loader.load(n, 0);
    tokens.insert(tokens.end(), batch.tokens.begin(), batch.tokens.end());
    targets.insert(targets.end(), batch.targets.begin(), batch.targets.end());
    weights.insert(weights.end(), batch.weights.begin(), batch.weights.end());
  }
  const std::array shape{steps, deck.schedule.global_batch, deck.model.seq_len};
  file.write([&](H5Writer& h5) {
    h5.write<std::int32_t>("/tokens", shape, tokens);
    h5.write<std::int32_t>("/targets", shape, targets);
    h5.write<float>("/weights", shape, weights);
  });
}

}  // namespace

void dump_steps(Launch& launch, std::int64_t steps, const std::string& path) {
  const MpiComm& world = launch.place.world;
  const Measured measured = measure(launch.deck, launch.place.topology, launch.place.rank, launch.device->kind());
  Parts parts(launch.deck, launch.place, *launch.device, measured.scratch_bytes);
  const std::unique_ptr<Loader> loader = make_loader(launch, launch.data.train);
  Timers timers;
  Trainer trainer(parts, *loader, timers);
  parts.params.initialise(parts.kernels, parts.stream, static_cast<std::uint64_t>(launch.deck.run.seed));

  DumpFile file(world, path);
  write_batches(file, launch, steps);
  visit_weights(parts, write_into(file, "/initial"));
  const StepTotals totals = trainer.gradients(1);
  visit_gradients(parts, 1.0 / totals.tokens, write_into(file, "/gradients"));
  std::vector<double> loss, norm, lr;
  for (std::int64_t n = 1; n <= steps; ++n) {
    trainer.step(n);
    const StepScalars scalars = trainer.result();
    loss.push_back(scalars.loss);
    norm.push_back(scalars.gradient_norm);
    lr.push_back(scalars.lr);
  }
  visit_weights(parts, write_into(file, "/parameters"));
  const std::array shape{steps};
  file.write([&](H5Writer& h5) {
    h5.write<double>("/loss", shape, loss);
    h5.write<double>("/grad_norm", shape, norm);
    h5.write<double>("/lr", shape, lr);
    h5.close();
  });
}

}  // namespace llmtrain
