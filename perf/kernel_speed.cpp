// SPDX-License-Identifier: Apache-2.0
/// Rates of the device's operations at the shapes of real models, one by one, beside a copy measured in the same run. The
/// operations are those that the trace back end reports for a step of each model, so that their times, added up, are the
/// roof of its step: what the same kernels would take without host, gaps and communication. Prints Markdown.
///   kernel_speed [--cpu] [--models NAME,...] [--only NAME,...] [block.key=value ...]
/// NAME is a part of a model's or an operation's name; keys change all models.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "llmtrain/backend/kernels.hpp"
#include "llmtrain/backend/workspace.hpp"
#include "llmtrain/base/clock.hpp"
#include "llmtrain/base/error.hpp"
#include "llmtrain/base/median.hpp"
#include "llmtrain/config/read.hpp"
#include "llmtrain/driver/dry_run.hpp"
#include "llmtrain/driver/micro_batches.hpp"
#include "llmtrain/driver/resolve.hpp"
#include "llmtrain/metrics/flops.hpp"
#include "llmtrain/plan/costs.hpp"
#include "llmtrain/tools/tool.hpp"

namespace llmtrain {
namespace {

/// A model and the batch that peers are measured with.
struct Row {
  const char* name;
  const char* deck;
};
constexpr Row rows[] = {
    {"gpt2-124m", "{model: {preset: gpt2-124m}, schedule: {micro_batch: 64, global_batch: 512}}"},
    {"gpt2-1.5b", "{model: {preset: gpt2-1.5b}, schedule: {micro_batch: 16, global_batch: 256}}"},
    {"qwen2.5-1.5b", "{model: {preset: qwen2.5-1.5b, seq_len: 1024}, schedule: {micro_batch: 16, global_batch: 256}}"},
    {"qwen2.5-3b", "{model: {preset: qwen2.5-3b, seq_len: 1024}, schedule: {micro_batch: 16, global_batch: 128}}"},
    {"qwen2.5-7b", "{model: {preset: qwen2.5-7b, seq_len: 1024}, schedule: {micro_batch: 8, global_batch: 64}}"},
    {"llama3.2-1b", "{model: {preset: llama3.2-1b, seq_len: 8192}, schedule: {micro_batch: 2, global_batch: 8}}"},
    {"llama3.2-3b", "{model: {preset: llama3.2-3b, seq_len: 8192}, schedule: {micro_batch: 1, global_batch: 4}}"},
    {"llama3-8b-8",
     "{model: {preset: llama3-8b, layers: 8, seq_len: 8192}, schedule: {micro_batch: 1, global_batch: 4}}"},
};

/// Operations of one kind: equal names, dtypes and shapes. Operands have the addresses of the first of them.
struct Operation {
  std::string name, form;
  std::vector<Tensor> writes, reads;
  double flops = 0, bytes = 0;
  std::int64_t calls = 0;

  /// What stands in the table: the largest operand tells most.
  std::string shape() const {
    const auto bytes_less = [](const Tensor& a, const Tensor& b) { return a.bytes() < b.bytes(); };
    const auto& tensors = reads.empty() ? writes : reads;
    const auto is_last_read = [&](const Tensor& t) { return t.data == tensors.back().data; };
    const char* const added = std::any_of(writes.begin(), writes.end(), is_last_read) ? ", added" : "";
    if (name == "gemm") {
      const Tensor& d = writes[0];
      return fmt::format("{} {} [{}, {}] depth {:.0f}{}", form, name_of(d.dtype), d.rows(), d.cols(),
                         flops / 2 / static_cast<double>(d.numel()), added);
    }
    return std::max_element(tensors.begin(), tensors.end(), bytes_less)->describe() + added;
  }
};

/// Collects the operations of a trace.
class Operations final : public OpObserver {
 public:
  void on_operation(const OpNote& note) override {
    std::string key = std::string(note.name) + note.form;
    for (const Tensor& t : note.writes) key += t.describe();
    key += '<';
    for (const Tensor& t : note.reads) key += t.describe();
    const auto [place, fresh] = places_.try_emplace(key, list_.size());
    if (fresh) {
      double bytes = moved_bytes(note);
      for (const Tensor& t : note.writes) bytes -= t.dtype == DType::uint8 ? static_cast<double>(t.bytes()) : 0;
      if (std::string_view(note.name) == "copy") bytes = 2 * static_cast<double>(note.reads[0].bytes());
      list_.push_back({note.name,
                       note.form,
                       {note.writes.begin(), note.writes.end()},
                       {note.reads.begin(), note.reads.end()},
                       note.flops,
                       bytes,
                       0});
    }
    ++list_[place->second].calls;
  }
  void on_batch(const BatchNote&) override {}

  std::vector<Operation>& list() { return list_; }

 private:
  std::map<std::string, std::size_t> places_;
  std::vector<Operation> list_;
};

/// Device memory for the operands of one call, with random contents. What overlaps in the model overlaps here too.
class Operands {
 public:
  Operands(Device& device, Stream stream, const Operation& operation, std::uint64_t seed)
      : writes(operation.writes), reads(operation.reads), device_(device), stream_(stream), random_(seed) {
    std::vector<Tensor*> tensors;
    for (Tensor& t : writes) tensors.push_back(&t);
    for (Tensor& t : reads) tensors.push_back(&t);
    std::sort(tensors.begin(), tensors.end(), [](const Tensor* a, const Tensor* b) { return a->data < b->data; });
    for (auto first = tensors.begin(); first != tensors.end();) {
      const char* end = end_of(**first);
      auto last = first;
      for (; last != tensors.end() && (*last)->data < end; ++last) end = std::max(end, end_of(**last));
      if (last == first) ++last;  // without elements
      place({first, last}, end);
      first = last;
    }
  }
  ~Operands() {
    for (void* memory : owned_) device_.release(memory, MemorySpace::device);
  }
  Operands(const Operands&) = delete;
  Operands& operator=(const Operands&) = delete;

  /// Bytes that a set of operands takes.
  static double bytes_of(const Operation& operation) {
    std::set<const void*> seen;
    double bytes = 0;
    for (const auto* list : {&operation.writes, &operation.reads}) {
      for (const Tensor& t : *list) bytes += seen.insert(t.data).second ? static_cast<double>(t.bytes()) : 0;
    }
    return bytes;
  }

  void set_integers(const Tensor& t, const std::function<std::int64_t(std::int64_t)>& value) {
    if (t.dtype == DType::int64) return upload<std::int64_t>(t, value);
    upload<std::int32_t>(t, value);
  }
  std::int64_t below(std::int64_t limit) {
    return static_cast<std::int64_t>(random_() % static_cast<std::uint64_t>(limit));
  }
  void set(const Tensor& t, const std::vector<double>& values) {
    device_.upload(stream_, t, values.data());
    device_.synchronize(stream_);
  }

  std::vector<Tensor> writes, reads;

 private:
  static const char* end_of(const Tensor& t) {
    const std::int64_t elements = t.rows() == 0 ? 0 : (t.rows() - 1) * t.leading + t.cols();
    return static_cast<const char*>(t.data) + elements * size_of(t.dtype);
  }

  void place(std::span<Tensor*> tensors, const char* end) {
    const char* const begin = static_cast<const char*>(tensors[0]->data);
    const auto skip = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(begin) % memory_alignment);
    const DType dtype = tensors[0]->dtype;
    const std::int64_t count = (end - begin) / size_of(dtype);
    auto* const memory = static_cast<char*>(device_.allocate(skip + count * size_of(dtype), MemorySpace::device));
    require(memory != nullptr, ExitCode::out_of_memory, "no memory for the operands of an operation");
    owned_.push_back(memory);
    if (count > 0 && (dtype == DType::bf16 || dtype == DType::fp32 || dtype == DType::fp64)) {
      device_.kernels().init_normal(stream_, Tensor::dense(memory + skip, dtype, {count}), {random_(), random_()},
                                    {0, 0, count}, 1);
    }
    for (Tensor* t : tensors) t->data = memory + skip + (static_cast<const char*>(t->data) - begin);
  }

  template <class T>
  void upload(const Tensor& t, const std::function<std::int64_t(std::int64_t)>& value) {
    std::vector<T> values(static_cast<std::size_t>(t.numel()));
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<T>(value(static_cast<std::int64_t>(i)));
    device_.upload(stream_, t, values.data());
    device_.synchronize(stream_);
  }

  Device& device_;
  Stream stream_;
  std::mt19937_64 random_;
  std::vector<void*> owned_;
};

/// An operation's call, from what it notes. The notes leave out optional tensors that are absent.
class Caller {
 public:
  Caller(Device& device, Stream stream, const Deck& deck) : kernels_(device.kernels()), stream_(stream), deck_(deck) {
    const Gelu form = deck.model.activation == Activation::gelu ? Gelu::exact : Gelu::tanh;
    const double eps = deck.model.norm_eps;
    calls_ = {
        {"gemm", [this](auto& w, auto& r, auto& f) { gemm(w, r, f); }},
        {"embedding_forward",
         [this](auto& w, auto& r, auto&) {
           kernels_.embedding_forward(stream_, w[0], r[0], r[1], {0, r[1].rows()},
                                      r.size() == 3 ? Write::accumulate : Write::overwrite);
         }},
        {"embedding_backward", [this](auto& w, auto& r, auto&) { embedding_backward(w, r); }},
        {"rms_norm_forward",
         [this, eps](auto& w, auto& r, auto&) {
           const bool sum = r.size() == 3;
           kernels_.rms_norm_forward(stream_, w[0], sum ? w[1] : Tensor{}, w.back(), r[0], sum ? r[1] : Tensor{},
                                     r.back(), eps);
         }},
        {"rms_norm_backward", [this](auto& w, auto& r, auto&) { rms_norm_backward(w, r); }},
        {"layer_norm_forward",
         [this, eps](auto& w, auto& r, auto&) {
           const bool sum = r.size() == 4;
           kernels_.layer_norm_forward(stream_, w[0], sum ? w[1] : Tensor{}, w[w.size() - 2], w.back(), r[0],
                                       sum ? r[1] : Tensor{}, r[r.size() - 2], r.back(), eps);
         }},
        {"layer_norm_backward", [this](auto& w, auto& r, auto&) { layer_norm_backward(w, r); }},
        {"rope", [this](auto& w, auto& r, auto&) { kernels_.rope(stream_, w[0], r[1], r[2], Rotation::forward); }},
        {"attention_forward",
         [this](auto& w, auto& r, auto&) {
           kernels_.attention_forward(stream_, w[0], w[1], r[0], r[1], r[2], {}, attention(r[0], r[1]));
         }},
        {"attention_backward",
         [this](auto& w, auto& r, auto&) {
           kernels_.attention_backward(stream_, w[0], w[1], w[2], r[0], r[1], r[2], r[3], r[4], r[5], {},
                                       attention(r[1], r[2]), w[3]);
         }},
        {"swiglu_forward", [this](auto& w, auto& r, auto&) { kernels_.swiglu_forward(stream_, w[0], r[0]); }},
        {"swiglu_backward", [this](auto& w, auto& r, auto&) { kernels_.swiglu_backward(stream_, w[0], r[0], r[1]); }},
        {"gelu_forward",
         [this, form](auto& w, auto& r, auto&) { kernels_.gelu_forward(stream_, w[0], r[0], optional(r, 1), form); }},
        {"gelu_backward",
         [this, form](auto& w, auto& r, auto&) {
           kernels_.gelu_backward(stream_, w[0], r[0], r[1], optional(r, 2), form);
         }},
        {"bias_add", [this](auto& w, auto& r, auto&) { kernels_.bias_add(stream_, w[0], r[0], r[1]); }},
        {"bias_gradient",
         [this](auto& w, auto& r, auto&) { kernels_.bias_gradient(stream_, w[0], r[0], write_of(w[0], r)); }},
        {"bias_dropout",
         [this](auto& w, auto& r, auto&) {
           kernels_.bias_dropout(stream_, w[0], r[0], r.size() == 3 ? r[1] : Tensor{}, r.back(), dropout(r.back()));
         }},
        {"dropout_backward",
         [this](auto& w, auto& r, auto&) { kernels_.dropout_backward(stream_, w[0], r[0], r[1], dropout(r[1])); }},
        {"cross_entropy_stats",
         [this](auto& w, auto& r, auto&) { kernels_.cross_entropy_stats(stream_, w[0], r[0], r[1], vocab()); }},
        {"cross_entropy_loss",
         [this](auto& w, auto& r, auto&) { kernels_.cross_entropy_loss(stream_, w[0], r[1], r[2]); }},
        {"cross_entropy_gradient",
         [this](auto& w, auto& r, auto&) {
           kernels_.cross_entropy_gradient(stream_, w[0], r[1], r[2], r[3], vocab());
         }},
        {"add", [this](auto& w, auto& r, auto&) { kernels_.add(stream_, w[0], r[0], r[1]); }},
        {"scale_add", [this](auto& w, auto& r, auto&) { kernels_.scale_add(stream_, w[0], r[0], 0.5); }},
        {"convert", [this](auto& w, auto& r, auto&) { kernels_.convert(stream_, w[0], r[0]); }},
        {"copy", [this](auto& w, auto& r, auto&) { kernels_.copy(stream_, w[0], r[0]); }},
        {"fill", [this](auto& w, auto&, auto&) { kernels_.fill(stream_, w[0], 0); }},
        {"sum_squares", [this](auto& w, auto& r, auto&) { kernels_.sum_squares(stream_, w[0], r[1]); }},
        {"step_scalars", [this](auto& w, auto& r, auto&) { kernels_.step_scalars(stream_, w[0], r[0], {}); }},
        {"adamw",
         [this](auto& w, auto& r, auto&) {
           kernels_.adamw(stream_, w[0], w[1], w[2], optional(w, 3), r[3], r[4], {.weight_decay = 0.1});
         }},
    };
  }

  bool knows(const Operation& operation) const { return calls_.contains(operation.name); }
  void call(const Operation& operation, const Operands& on) const {
    calls_.at(operation.name)(on.writes, on.reads, operation.form);
  }
  /// Contents that are not any numbers: token ids, positions, statistics, second moments.
  void prepare(const Operation& operation, Operands& on) const;

 private:
  using Tensors = std::vector<Tensor>;

  static Tensor optional(const Tensors& list, std::size_t index) {
    return index < list.size() ? list[index] : Tensor{};
  }
  static Write write_of(const Tensor& destination, const Tensors& reads) {
    return reads.back().data == destination.data ? Write::accumulate : Write::overwrite;
  }
  VocabRange vocab() const { return {0, deck_.model.vocab}; }
  DropoutKey dropout(const Tensor& samples) const {
    return {.probability = 0.1, .seed = 1, .operation = 1, .sequence = deck_.model.seq_len * 64 / samples.numel()};
  }
  AttentionOptions attention(const Tensor& q, const Tensor& k) const {
    const std::int64_t sequence = deck_.model.seq_len, dim = q.extent[2];
    return {.shape = {q.rows() / sequence, sequence, q.extent[1], k.extent[1], dim},
            .scale = 1 / std::sqrt(static_cast<double>(dim))};
  }

  void gemm(const Tensors& w, const Tensors& r, const std::string& form) const {
    const Write write = r.size() > 2 ? write_of(w[0], r) : Write::overwrite;
    const bool bias = r.size() == (write == Write::accumulate ? 4 : 3);
    kernels_.gemm(stream_,
                  form == "nn"   ? GemmForm::nn
                  : form == "nt" ? GemmForm::nt
                                 : GemmForm::tn,
                  w[0], r[0], r[1], write, bias ? r[2] : Tensor{});
  }
  void embedding_backward(const Tensors& w, const Tensors& r) const {
    const Write write = write_of(w[0], r);
    const bool ordered = r.size() == (write == Write::accumulate ? 4 : 3);
    kernels_.embedding_backward(stream_, w[0], r[0], r[1], ordered ? r[2] : Tensor{}, {0, w[0].rows()}, write);
  }
  void rms_norm_backward(const Tensors& w, const Tensors& r) const {
    const Write write = write_of(w[1], r);
    const std::size_t at = r.size() == (write == Write::accumulate ? 6 : 5) ? 1 : 0;  // of d_y
    kernels_.rms_norm_backward(stream_, w[0], w[1], at == 1 ? r[0] : Tensor{}, r[at], r[at + 1], r[at + 2], r[at + 3],
                               write, w[2]);
  }
  void layer_norm_backward(const Tensors& w, const Tensors& r) const {
    const Write write = write_of(w[2], r);
    const std::size_t at = r.size() == (write == Write::accumulate ? 8 : 6) ? 1 : 0;
    kernels_.layer_norm_backward(stream_, w[0], w[1], w[2], at == 1 ? r[0] : Tensor{}, r[at], r[at + 1], r[at + 2],
                                 r[at + 3], r[at + 4], write, w[3]);
  }

  Kernels& kernels_;
  Stream stream_;
  const Deck& deck_;
  std::map<std::string, std::function<void(const Tensors&, const Tensors&, const std::string&)>> calls_;
};

void Caller::prepare(const Operation& operation, Operands& on) const {
  const std::string& name = operation.name;
  const Tensors &w = on.writes, &r = on.reads;
  const auto fill = [&](const Tensor& t, double value) { kernels_.fill(stream_, t, value); };
  const auto any_below = [&](std::int64_t limit) { return [&on, limit](std::int64_t) { return on.below(limit); }; };
  const auto in_turn = [](std::int64_t period) { return [period](std::int64_t i) { return i % period; }; };
  if (name == "embedding_forward") {
    const std::int64_t ids = r[1].rows();
    const bool positions = r.size() == 3;
    on.set_integers(r[0], positions ? std::function<std::int64_t(std::int64_t)>(in_turn(ids)) : any_below(ids));
  } else if (name == "embedding_backward") {
    const std::int64_t ids = w[0].rows();
    if (r.size() < 3 || r[2].dtype != DType::int32) return on.set_integers(r[1], in_turn(ids));
    std::vector<std::int64_t> id(static_cast<std::size_t>(r[1].numel())), order(id.size());
    for (std::int64_t& each : id) each = on.below(ids);
    std::iota(order.begin(), order.end(), 0);
    const auto at = [&](std::int64_t i) { return id[static_cast<std::size_t>(i)]; };
    std::stable_sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) { return at(a) < at(b); });
    on.set_integers(r[1], at);
    on.set_integers(r[2], [&](std::int64_t i) { return order[static_cast<std::size_t>(i)]; });
  } else if (name == "rope") {
    on.set_integers(r[2], in_turn(r[1].rows()));
  } else if (name == "attention_backward") {
    fill(r[5], 7);  // about the logarithm of a thousand
  } else if (name == "cross_entropy_stats") {
    on.set_integers(r[1], any_below(deck_.model.vocab));
  } else if (name == "cross_entropy_loss") {
    fill(r[1], 10);
  } else if (name == "cross_entropy_gradient") {
    fill(r[1], 10);
    on.set_integers(r[2], any_below(deck_.model.vocab));
  } else if (name == "bias_dropout" || name == "dropout_backward") {
    on.set_integers(r.back(), in_turn(r.back().numel()));
  } else if (name == "adamw") {
    fill(r[2], 1e-2);
    on.set(r[4], {1e-3, 1e-4, 0.1, 0.05, 1, 0, 1, 1});
  }
}

/// Enough of a queue that its beginning and end do not count, and operands enough that no cache serves them.
struct Effort {
  double queue_seconds, rotated_bytes;
  int goes;
  std::int64_t copied_bytes;
};
Effort effort_of(DeviceKind kind) {
  return kind == DeviceKind::cuda ? Effort{4e-3, 0x1p28, 7, std::int64_t{1} << 30}
                                  : Effort{2e-2, 0x1p26, 3, std::int64_t{1} << 27};
}

/// Seconds of a call: the median of several queues of calls, each between two waits of the host.
double seconds_of(Device& device, Stream stream, const Caller& caller, const Operation& operation) {
  const Effort effort = effort_of(device.kind());
  std::vector<std::unique_ptr<Operands>> sets;
  const auto count = static_cast<std::size_t>(
      std::clamp(std::ceil(effort.rotated_bytes / std::max(Operands::bytes_of(operation), 1.0)), 1.0, 32.0));
  for (std::size_t i = 0; i < count; ++i) {
    sets.push_back(std::make_unique<Operands>(device, stream, operation, i + 1));
    caller.prepare(operation, *sets.back());
  }
  std::size_t next = 0;
  const auto queue = [&](int calls) {
    const Stopwatch watch;
    for (int i = 0; i < calls; ++i) caller.call(operation, *sets[next++ % sets.size()]);
    stream.synchronize();
    return watch.seconds();
  };
  queue(1);  // where algorithms are chosen
  const int few = static_cast<int>(count);
  const double about = std::min(queue(few), queue(few)) / few;
  const int calls = static_cast<int>(std::clamp(std::ceil(effort.queue_seconds / about), 1.0, 1000.0));
  std::vector<double> goes;
  for (int go = 0; go < effort.goes; ++go) goes.push_back(queue(calls) / calls);
  return median(std::move(goes));
}

/// Memory-bound operations that no step above has, at the size of GPT-2's residual stream.
void issue_others(Device& trace, Stream stream, DeviceKind kind) {
  Kernels& kernels = trace.kernels();
  const std::int64_t tokens = kind == DeviceKind::cuda ? 65536 : 4096, hidden = 768, n = tokens * hidden;
  const auto make = [&](DType dtype, std::initializer_list<std::int64_t> shape) {
    const Tensor t = Tensor::dense(nullptr, dtype, shape);
    return Tensor::dense(trace.allocate(t.bytes(), MemorySpace::device), dtype, shape);
  };
  const auto matrix = [&](DType dtype) { return make(dtype, {tokens, hidden}); };
  const DType bf16 = DType::bf16, fp32 = DType::fp32;
  kernels.convert(stream, matrix(bf16), matrix(fp32));
  kernels.convert(stream, matrix(fp32), matrix(bf16));
  kernels.copy(stream, matrix(bf16), matrix(bf16));
  kernels.fill(stream, matrix(bf16), 0);
  kernels.add(stream, matrix(bf16), matrix(bf16), matrix(bf16));
  kernels.scale_add(stream, matrix(fp32), matrix(bf16), 0.5);
  kernels.bias_add(stream, matrix(bf16), matrix(bf16), make(bf16, {hidden}));
  const DropoutKey key{.probability = 0.1, .sequence = tokens / 64};
  const Tensor samples = make(DType::int64, {64});
  kernels.bias_dropout(stream, matrix(bf16), matrix(bf16), make(bf16, {hidden}), samples, key);
  kernels.dropout_backward(stream, matrix(bf16), matrix(bf16), samples, key);
  const Tensor totals = make(DType::fp64, {step_totals_size}), scalars = make(DType::fp64, {step_scalars_size});
  kernels.sum_squares(stream, totals, make(bf16, {n}));
  for (const DType moments : {fp32, bf16}) {
    for (const DType gradient : {fp32, bf16}) {
      kernels.adamw(stream, make(fp32, {n}), make(moments, {n}), make(moments, {n}), make(bf16, {n}),
                    make(gradient, {n}), scalars, {});
    }
  }
}

struct Request {
  bool cpu = false;
  std::vector<std::string> models, only, overrides;
};

std::vector<std::string> split(const std::string& list) {
  std::vector<std::string> parts(1);
  for (const char c : list) {
    if (c == ',') {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  return parts;
}

Request parse(const std::vector<std::string>& arguments) {
  Request request;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string& word = arguments[i];
    const bool more = i + 1 < arguments.size();
    if (word == "--cpu") {
      request.cpu = true;
    } else if (word == "--models" && more) {
      request.models = split(arguments[++i]);
    } else if (word == "--only" && more) {
      request.only = split(arguments[++i]);
    } else {
      require(word.find('=') != std::string::npos, ExitCode::usage,
              "usage: kernel_speed [--cpu] [--models NAME,...] [--only NAME,...] [block.key=value ...]");
      request.overrides.push_back(word);
    }
  }
  return request;
}

bool is_wanted(const std::vector<std::string>& parts, const std::string& name) {
  return parts.empty() || std::any_of(parts.begin(), parts.end(),
                                      [&](const std::string& part) { return name.find(part) != std::string::npos; });
}

/// One device, its copy's bandwidth, and tables beside it.
class Measurement {
 public:
  explicit Measurement(Request request)
      : request_(std::move(request)),
        device_(request_.cpu ? make_cpu_device(thread_count(0, MpiComm{})) : make_cuda_device({})),
        stream_(device_->make_stream("kernels")) {
    const std::int64_t workspace = std::max<std::int64_t>(kernels_workspace(device_->kind()), 1);
    workspace_ = device_->allocate(workspace, MemorySpace::device);
    device_->kernels().use_workspace(Tensor::dense(workspace_, DType::uint8, {workspace}));
    const std::int64_t n = effort_of(device_->kind()).copied_bytes / size_of(DType::fp32);
    const std::unique_ptr<Device> trace = make_trace_device(device_->kind());
    Operations copy;
    trace->set_observer(&copy);
    const auto make = [&] { return Tensor::dense(trace->allocate(4 * n, MemorySpace::device), DType::fp32, {n}); };
    trace->kernels().copy(trace->make_stream("copy"), make(), make());
    const Deck none;
    const Operation& operation = copy.list()[0];
    copy_rate_ = operation.bytes / seconds_of(*device_, stream_, Caller(*device_, stream_, none), operation);
    fmt::print("- device: {}; copy of {} MiB: {:.3f} TB/s, read and written\n", device_->describe(), (4 * n) >> 20,
               copy_rate_ / 1e12);
  }
  ~Measurement() { device_->release(workspace_, MemorySpace::device); }
  Measurement(const Measurement&) = delete;
  Measurement& operator=(const Measurement&) = delete;

  void all() {
    for (const Row& row : rows) {
      if (is_wanted(request_.models, row.name)) model(row);
    }
    if (is_wanted(request_.models, "others")) others();
  }

 private:
  Deck deck_of(const Row& row) const {
    std::vector<std::string> overrides{"precision.compute=bf16"};
    overrides.insert(overrides.end(), request_.overrides.begin(), request_.overrides.end());
    return resolve(parse_deck(row.deck, row.name, overrides, {.ranks = 1}), 257, device_->kind());
  }

  void model(const Row& row) const {
    const Deck deck = deck_of(row);
    const Topology topology(deck, 1);
    Operations step;
    DryRank(deck, topology, 0, device_->kind(), micro_batches_of(deck, topology)).step(step);
    const double seconds = table(row.name, deck, step.list());
    if (!request_.only.empty()) return;
    const double tokens = static_cast<double>(deck.schedule.global_batch * deck.model.seq_len);
    fmt::print("\nsum: {:.1f} ms a step of {:.0f} tokens: {:.0f} tokens/s, {:.1f} TFLOP/s by 6 N + 6 L d s\n",
               1e3 * seconds, tokens, tokens / seconds, flops_per_token(deck.model).causal * tokens / seconds / 1e12);
  }

  void others() const {
    const std::unique_ptr<Device> trace = make_trace_device(device_->kind());
    Operations operations;
    trace->set_observer(&operations);
    issue_others(*trace, trace->make_stream("others"), device_->kind());
    const Deck deck = parse_deck("{model: {preset: gpt2-124m}}", "others");
    table("others", deck, operations.list());
  }

  /// Returns the seconds of all calls.
  double table(const char* name, const Deck& deck, std::vector<Operation>& operations) const {
    struct Line {
      double seconds;
      std::string text;
    };
    const Caller caller(*device_, stream_, deck);
    std::vector<Line> lines;
    double all = 0;
    for (const Operation& operation : operations) {
      if (!is_wanted(request_.only, operation.name)) continue;
      require(caller.knows(operation), ExitCode::internal, "kernel_speed cannot call {}", operation.name);
      const double each = seconds_of(*device_, stream_, caller, operation);
      const double seconds = static_cast<double>(operation.calls) * each;
      all += seconds;
      const std::string rate = operation.flops > 0 ? fmt::format("| | | {:.0f} |", operation.flops / each / 1e12)
                                                   : fmt::format("| {:.3f} | {:.1f} | |", operation.bytes / each / 1e12,
                                                                 100 * operation.bytes / each / copy_rate_);
      lines.push_back(
          {seconds, fmt::format("| {} | {} | {} | {:.1f} | {:.1f} | {:.2f} {}", operation.name, operation.shape(),
                                operation.calls, 1e6 * each, operation.bytes / 1e6, 1e3 * seconds, rate)});
    }
    std::stable_sort(lines.begin(), lines.end(), [](const Line& a, const Line& b) { return a.seconds > b.seconds; });
    fmt::print("\n{}\n\n| operation | on | calls a step | us | MB | ms a step | TB/s | % of copy | TFLOP/s |\n", name);
    fmt::print("|---|---|--:|--:|--:|--:|--:|--:|--:|\n");
    for (const Line& line : lines) fmt::print("{}\n", line.text);
    std::fflush(stdout);
    return all;
  }

  const Request request_;
  const std::unique_ptr<Device> device_;
  const Stream stream_;
  void* workspace_ = nullptr;
  double copy_rate_ = 0;
};

}  // namespace
}  // namespace llmtrain

int main(int argc, char** argv) {
  try {
    llmtrain::Measurement(llmtrain::parse({argv + 1, argv + argc})).all();
    return 0;
  } catch (const llmtrain::Error& error) {
    std::fputs(llmtrain::error_text(error).c_str(), stderr);
    return static_cast<int>(error.code());
  }
}
