// SPDX-License-Identifier: Apache-2.0
/// A short run whose tensors are put together whole on every rank and written by rank 0.
#include "llmtrain/driver/dump.hpp"

#include <optional>

#include "llmtrain/base/agree.hpp"
#include "llmtrain/base/bf16.hpp"
#include "llmtrain/checkpoint/h5_writer.hpp"
#include "llmtrain/data/loader.hpp"
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

/// The elements of a dense tensor.
std::vector<double> to_host(Parts& parts, Tensor tensor) {
  const auto read = [&]<class T>(T) {
    std::vector<T> values(static_cast<std::size_t>(tensor.numel()));
    parts.device.download(parts.stream, values.data(), tensor);
    parts.stream.synchronize();
    return std::vector<double>(values.begin(), values.end());
  };
  if (tensor.dtype == DType::bf16) return read(Bf16{});
  return tensor.dtype == DType::fp64 ? read(double{}) : read(float{});
}

/// Writes every section of a storage's flat local array, scaled, in true global shape.
void write_sections(DumpFile& file, Parts& parts, const std::string& group, int storage, Tensor flat, double scale) {
  const auto at = static_cast<std::size_t>(storage);
  const StorageLayout& layout = parts.shape.layouts[at];
  const std::vector<double> host = to_host(parts, flat);
  for (const SectionRange& range : section_ranges(layout, 0, flat.numel())) {
    const Section& section = parts.table.storages[at].sections[static_cast<std::size_t>(range.section)];
    std::vector<double> values(static_cast<std::size_t>(section.numel()));
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = scale * host[static_cast<std::size_t>(range.offset) + i];
    }
    file.write([&](H5Writer& h5) { h5.write<double>(group + dataset_path(section.name), section.shape, values); });
  }
}

void write_parameters(DumpFile& file, Parts& parts, const std::string& group) {
  for (std::size_t lease = 0; lease < parts.table.leases.size(); ++lease) {
    parts.params.acquire(static_cast<int>(lease), parts.stream);
    parts.params.release(static_cast<int>(lease), parts.stream);
  }
  for (int i = 0; i < parts.shape.storages(); ++i) write_sections(file, parts, group, i, parts.params.whole(i), 1.0);
}

void write_gradients(DumpFile& file, Parts& parts, double scale) {
  for (int i = 0; i < parts.shape.storages(); ++i) {
    const Tensor flat = parts.grads.flat(i);
    if (parts.shard != nullptr) {
      Communicator::Batch batch(*parts.shard, parts.stream.record());
      batch.all_gather(flat, parts.grads.own_chunk(i));
      parts.stream.wait(batch.submit());
    }
    write_sections(file, parts, "/gradients", i, flat, scale);
  }
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
  write_parameters(file, parts, "/initial");
  const StepTotals totals = trainer.gradients(1);
  write_gradients(file, parts, 1.0 / totals.tokens);
  std::vector<double> loss, norm, lr;
  for (std::int64_t n = 1; n <= steps; ++n) {
    trainer.step(n);
    const StepScalars scalars = trainer.result();
    loss.push_back(scalars.loss);
    norm.push_back(scalars.gradient_norm);
    lr.push_back(scalars.lr);
  }
  write_parameters(file, parts, "/parameters");
  const std::array shape{steps};
  file.write([&](H5Writer& h5) {
    h5.write<double>("/loss", shape, loss);
    h5.write<double>("/grad_norm", shape, norm);
    h5.write<double>("/lr", shape, lr);
    h5.close();
  });
}

}  // namespace llmtrain
