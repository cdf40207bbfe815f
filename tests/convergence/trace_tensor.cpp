// SPDX-License-Identifier: Apache-2.0
/// Tensor and sequence parallelism as issued: which collectives, in which order with the matrix products, how many bytes,
/// the same on all ranks of a group; and how the FLOPs and activations of a rank shrink.
#include <doctest/doctest.h>

#include "llmtrain/driver/dry_run.hpp"
#include "llmtrain/driver/step.hpp"

using namespace llmtrain;

namespace {

constexpr std::int64_t layers = 3, hidden = 64, tokens = 2 * 32, micro_batches = 4;

Deck tensor_deck(int tensor, bool sequence) {
  Deck deck;
  deck.model.layers = layers;
  deck.model.hidden = hidden;
  deck.model.heads = 8;
  deck.model.kv_heads = 2;
  deck.model.head_dim = 8;
  deck.model.ffn = 96;
  deck.model.seq_len = 32;
  deck.model.vocab = 257;
  deck.model.vocab_multiple = 16;
  deck.schedule.micro_batch = 2;
  deck.schedule.global_batch = 2 * micro_batches;
  deck.parallel.tensor = tensor;
  deck.parallel.sequence = sequence;
  deck.precision.compute = Compute::fp32;
  return deck;
}

/// Everything that forward, backward and reductions of a step issue on one rank.
std::vector<TraceRecorder::Note> notes_of(const Deck& deck, int ranks, int rank) {
  const std::unique_ptr<Device> device = make_trace_device(DeviceKind::cpu);
  Parts parts(deck, {Topology(deck, ranks), rank, MpiComm{}}, *device, 0);
  TraceRecorder recorder(true);
  device->set_observer(&recorder);
  Timers timers;
  run_gradients(
      parts, [](std::int64_t, const Batch&) {}, timers);
  device->set_observer(nullptr);
  return recorder.notes();
}

TraceRecorder::CollectiveTotal collective(const Measured& measured, const char* group, const char* name) {
  const auto& all = measured.trace.collectives();
  const auto found = all.find({group, name});
  return found == all.end() ? TraceRecorder::CollectiveTotal{} : found->second;
}

}  // namespace

TEST_CASE("collectives of a block: two all-reduces each way") {
  for (const int tensor : {2, 4, 8}) {
    CAPTURE(tensor);
    const Deck deck = tensor_deck(tensor, false);
    const Measured measured = measure(deck, Topology(deck, tensor), 1, DeviceKind::cpu);
    const auto sums = collective(measured, "tensor", "all_reduce"),
               stats = collective(measured, "tensor", "all_gather");
    // Beside the blocks, one at either end of the model. The numbers of the softmax: three a token and rank.
    CHECK(sums.calls == micro_batches * (layers * (2 + 2) + 2));
    CHECK(sums.bytes == sums.calls * tokens * hidden * 4);
    CHECK(stats.calls == micro_batches);
    CHECK(stats.bytes == micro_batches * tensor * 3 * tokens * 4);
    CHECK(collective(measured, "tensor", "reduce_scatter").calls == 0);
    // Two heads of K and V: K and V of each layer are added up over the ranks that share them.
    const auto kv = collective(measured, "kv", "all_reduce");
    CHECK(kv.calls == (tensor == 2 ? 0 : layers * 2));
    CHECK(kv.bytes == kv.calls * 8 * hidden * 4);
  }
}

TEST_CASE("collectives of a block under sequence parallelism: tokens of each other rank by themselves") {
  for (const int tensor : {2, 8}) {
    CAPTURE(tensor);
    const Deck deck = tensor_deck(tensor, true);
    const Measured measured = measure(deck, Topology(deck, tensor), 1, DeviceKind::cpu);
    const auto gathers = collective(measured, "tensor", "all_gather"),
               scatters = collective(measured, "tensor", "reduce_scatter"),
               sums = collective(measured, "tensor", "all_reduce"), shifts = collective(measured, "tensor", "shift"),
               copies = collective(measured, "tensor", "copy");
    const std::int64_t others = tensor - 1, part = tokens / tensor * hidden * 4;
    // Gathered: forward 2; backward 2 of dy, 2 of the saved input again; 1 at the model's either end. Summed: forward 2,
    // backward 2 of dx.
    const std::int64_t gathered = micro_batches * (layers * (2 + 4) + 2), summed = micro_batches * layers * (2 + 2);
    CHECK(shifts.calls == (gathered + summed) * others);
    CHECK(shifts.bytes == shifts.calls * part);
    CHECK(copies.calls == gathered);  // a rank's own tokens
    CHECK(copies.bytes == copies.calls * part);
    // Summed as a whole: of the embedding, and of the head's dx; gathered as a whole: the numbers of the softmax.
    CHECK(scatters.calls == micro_batches * 2);
    CHECK(scatters.bytes == scatters.calls * tokens * hidden * 4);
    CHECK(gathers.calls == micro_batches);
    CHECK(gathers.bytes == gathers.calls * tensor * 3 * tokens * 4);
    // Weights of norms, once a step.
    CHECK(sums.calls == layers * 2 + 1);
    CHECK(sums.bytes == sums.calls * hidden * 4);
    // These sums are one batch; own tokens are copied with the last of others.
    CHECK(measured.trace.batches().at("tensor") == shifts.calls + gathers.calls + scatters.calls + 1);
  }
}

TEST_CASE("what a matrix product does not need moves beside it") {
  Deck deck = tensor_deck(2, true);
  deck.model.layers = 1;
  deck.schedule.global_batch = 2;
  std::vector<std::string> order;
  for (const TraceRecorder::Note& note : notes_of(deck, 2, 0)) {
    if (note.name == "gemm" || (note.group == "tensor" && note.name != "all_reduce")) order.push_back(note.name);
  }
  const std::vector<std::string> expected{
      "reduce_scatter",  // embedding
      "shift",          "copy", "gemm", "gemm",       "gemm", "shift",
      "gemm",  // attention: qkv of own tokens, of others; o
      "shift",          "copy", "gemm", "gemm",       "gemm", "shift",
      "gemm",  // MLP: gate_up, down
      "shift",          "copy", "gemm", "all_gather", "gemm", "reduce_scatter",
      "gemm",                                                  // head: logits, statistics, dx, dW
      "shift",          "copy", "gemm", "gemm",       "gemm",  // MLP backward: down: dx of own tokens, of others; dW
      "shift",          "copy", "gemm", "shift",      "gemm", "gemm",  // up: dx of others' tokens, of own; dW
      "shift",          "copy", "gemm", "gemm",       "gemm",          // attention: o
      "shift",          "copy", "gemm", "shift",      "gemm", "gemm",  // qkv
      "shift",          "copy"};                                       // embedding
  CHECK(order == expected);
}

TEST_CASE("all ranks of a tensor group issue the same collectives") {
  for (const bool sequence : {false, true}) {
    Deck deck = tensor_deck(8, sequence);
    deck.model.dropout = 0.1;
    deck.model.qk_norm = true;
    const auto collectives = [&](int rank) {
      std::vector<std::string> list;
      for (const TraceRecorder::Note& note : notes_of(deck, 8, rank)) {
        if (note.group.empty()) continue;
        list.push_back(note.group + " " + note.name);
        for (const Tensor& t : note.reads) list.back().append(" ").append(t.describe());
        for (const Tensor& t : note.writes) list.back().append(" ").append(t.describe());
      }
      return list;
    };
    const std::vector<std::string> first = collectives(0);
    CHECK(!first.empty());
    for (int rank = 1; rank < 8; ++rank) CHECK(collectives(rank) == first);
  }
}

TEST_CASE("matrix products, attention and activations of a rank shrink with the group") {
  Deck deck = tensor_deck(1, false);
  deck.model.vocab = 256;  // no padding up to 8 ranks of multiple 16
  deck.model.kv_heads = 8;
  deck.model.seq_len = 256;
  const std::int64_t long_tokens = 2 * 256;
  const Measured one = measure(deck, Topology(deck, 1), 0, DeviceKind::cpu);
  for (const int tensor : {2, 4, 8}) {
    CAPTURE(tensor);
    const auto measured = [&](bool sequence) {
      deck.parallel.tensor = tensor;
      deck.parallel.sequence = sequence;
      return measure(deck, Topology(deck, tensor), tensor - 1, DeviceKind::cpu);
    };
    const Measured plain = measured(false), cut = measured(true);
    for (const Measured* m : {&plain, &cut}) {
      for (const char* name : {"gemm", "attention_forward", "attention_backward"}) {
        CHECK(tensor * m->trace.operations().at(name).flops == one.trace.operations().at(name).flops);
      }
    }
    // Of a block: residuals, norms and their statistics, [tokens, hidden] each, are whole without sequence parallelism.
    const std::int64_t stream = (layers * (4 * hidden + 2) + hidden) * long_tokens * 4;  // and the stream's gradient
    const auto activations = [](const Measured& m) { return m.plan.bytes(Segment::activations); };
    CHECK(activations(plain) - activations(cut) == stream - stream / tensor);
  }
}
