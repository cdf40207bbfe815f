// SPDX-License-Identifier: Apache-2.0
/// A short run whose tensors are put together whole on every rank and written by rank 0.
#include "llmtrain/driver/dump.hpp"

#include <optional>

#include "llmtrain/base/agree.hpp"
#include "llmtrain/checkpoint/h5_writer.hpp"
#include "llmtrain/data/loader.hpp"
#include "llmtrain/driver/layout_run.hpp"

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
  DumpFile file(launch.place.world, path);
  write_batches(file, launch, steps);
  const LayoutRun run{launch.deck, launch.place, *launch.device, launch.data.train, launch.masked_token()};
  const StepNumbers numbers = run_steps(
      run, steps, {write_into(file, "/initial"), write_into(file, "/gradients"), write_into(file, "/parameters")});
  const std::array shape{steps};
  file.write([&](H5Writer& h5) {
    h5.write<double>("/loss", shape, numbers.loss);
    h5.write<double>("/grad_norm", shape, numbers.gradient_norm);
    h5.write<double>("/lr", shape, numbers.lr);
    h5.close();
  });
}

}  // namespace llmtrain
