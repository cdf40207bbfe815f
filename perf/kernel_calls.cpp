// SPDX-License-Identifier: Apache-2.0
/// Notes of operations into calls.
#include "kernel_calls.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>
#include <string_view>

#include "llmtrain/base/error.hpp"
#include "llmtrain/memory/plan.hpp"
#include "llmtrain/plan/costs.hpp"

namespace llmtrain {

std::string Operation::shape() const {
  const auto bytes_less = [](const Tensor& a, const Tensor& b) { return a.bytes() < b.bytes(); };
  const auto& tensors = reads.empty() ? writes : reads;
  const auto is_last_read = [&](const Tensor& t) { return t.data == tensors.back().data; };
  const bool adds = !reads.empty() && std::any_of(writes.begin(), writes.end(), is_last_read);
  const char* const added = adds ? ", added" : "";
  if (name == "gemm") {
    const Tensor& d = writes[0];
    return fmt::format("{} {} [{}, {}] depth {:.0f}{}", form, name_of(d.dtype), d.rows(), d.cols(),
                       flops / 2 / static_cast<double>(d.numel()), added);
  }
  if (name == "adamw") {
    return fmt::format("[{}], moments {}, gradient {}", writes[0].numel(), name_of(reads[1].dtype),
                       name_of(reads[3].dtype));
  }
  return std::max_element(tensors.begin(), tensors.end(), bytes_less)->describe() + added;
}

void Operations::on_operation(const OpNote& note) {
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

namespace {

const char* end_of(const Tensor& t) {
  const std::int64_t elements = t.rows() == 0 ? 0 : (t.rows() - 1) * t.leading + t.cols();
  return static_cast<const char*>(t.data) + elements * size_of(t.dtype);
}

/// Integers of type T, by index.
template <class T>
std::vector<T> integers(std::int64_t count, const Operands::ByIndex& value) {
  std::vector<T> values(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<T>(value(static_cast<std::int64_t>(i)));
  return values;
}

Tensor optional(const std::vector<Tensor>& list, std::size_t index) {
  return index < list.size() ? list[index] : Tensor{};
}

Write write_of(const Tensor& destination, const std::vector<Tensor>& reads) {
  return reads.back().data == destination.data ? Write::accumulate : Write::overwrite;
}

/// Tokens of each document, cut where sequences are: about what the web's pages have.
constexpr std::int64_t document_tokens = 700;

/// Place in its sequence of the first token of a token's document.
Operands::ByIndex starts_of_documents(std::int64_t sequence) {
  return [sequence](std::int64_t token) {
    return std::max(token / document_tokens * document_tokens, token / sequence * sequence) % sequence;
  };
}

std::int64_t documents_of(std::int64_t tokens, std::int64_t sequence) {
  const auto start = starts_of_documents(sequence);
  std::int64_t count = 0;
  for (std::int64_t token = 0; token < tokens; ++token) count += start(token) == token % sequence ? 1 : 0;
  return count;
}

Gelu gelu_of(const Deck& deck) { return deck.model.activation == Activation::gelu ? Gelu::exact : Gelu::tanh; }

}  // namespace

Operands::Operands(Device& device, Stream stream, const Operation& operation, std::uint64_t seed)
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

Operands::~Operands() {
  for (void* memory : owned_) device_.release(memory, MemorySpace::device);
}

void Operands::place(std::span<Tensor*> tensors, const char* end) {
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
  if (is_fp8(dtype)) fill_fp8(Tensor::dense(memory + skip, dtype, {fp8_multiple, count / fp8_multiple}));
  for (Tensor* t : tensors) t->data = memory + skip + (static_cast<const char*>(t->data) - begin);
}

void Operands::fill_fp8(Tensor matrix) {
  const auto allocate = [&](std::int64_t bytes) {
    owned_.push_back(device_.allocate(bytes, MemorySpace::device));
    require(owned_.back() != nullptr, ExitCode::out_of_memory, "no memory for the operands of an operation");
    return owned_.back();
  };
  const std::int64_t count = matrix.numel();
  const Tensor wide =
      Tensor::dense(allocate(count * size_of(DType::bf16)), DType::bf16, {matrix.rows(), matrix.cols()});
  device_.kernels().init_normal(stream_, wide, {random_(), random_()}, {0, 0, wide.cols()}, 1);
  device_.kernels().quantize(stream_, matrix, {}, Tensor::dense(allocate(size_of(DType::fp32)), DType::fp32, {1}),
                             wide);
}

double Operands::bytes_of(const Operation& operation) {
  std::set<const void*> seen;
  double bytes = 0;
  for (const auto* list : {&operation.writes, &operation.reads}) {
    for (const Tensor& t : *list) bytes += seen.insert(t.data).second ? static_cast<double>(t.bytes()) : 0;
  }
  return bytes;
}

void Operands::set_integers(const Tensor& t, const ByIndex& value) {
  const auto upload = [&](const auto& values) {
    device_.upload(stream_, t, values.data());
    device_.synchronize(stream_);
  };
  if (t.dtype == DType::int64) return upload(integers<std::int64_t>(t.numel(), value));
  upload(integers<std::int32_t>(t.numel(), value));
}

void Operands::set(const Tensor& t, const std::vector<double>& values) {
  device_.upload(stream_, t, values.data());
  device_.synchronize(stream_);
}

std::int64_t Operands::below(std::int64_t limit) {
  return static_cast<std::int64_t>(random_() % static_cast<std::uint64_t>(limit));
}

Caller::Caller(Device& device, Stream stream, const Deck& deck)
    : kernels_(device.kernels()), stream_(stream), deck_(deck) {
  add_layers();
  add_loss();
  add_elementwise();
}

void Caller::add_layers() {
  const double eps = deck_.model.norm_eps;
  calls_.insert({
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
         kernels_.attention_forward(stream_, w[0], w[1], r[0], r[1], r[2], optional(r, 3), attention(r[0], r[1]));
       }},
      {"attention_backward",
       [this](auto& w, auto& r, auto&) {
         kernels_.attention_backward(stream_, w[0], w[1], w[2], r[0], r[1], r[2], r[3], r[4], r[5], optional(r, 6),
                                     attention(r[1], r[2]), w[3]);
       }},
  });
}

void Caller::add_loss() {
  calls_.insert({
      {"cross_entropy_stats",
       [this](auto& w, auto& r, auto&) { kernels_.cross_entropy_stats(stream_, w[0], r[0], r[1], vocab()); }},
      {"cross_entropy_loss",
       [this](auto& w, auto& r, auto&) { kernels_.cross_entropy_loss(stream_, w[0], r[1], r[2]); }},
      {"cross_entropy_gradient",
       [this](auto& w, auto& r, auto&) { kernels_.cross_entropy_gradient(stream_, w[0], r[1], r[2], r[3], vocab()); }},
      {"cross_entropy_with_gradient",
       [this](auto& w, auto& r, auto&) {
         kernels_.cross_entropy_with_gradient(stream_, w[1], w[0], r[1], r[2], vocab());
       }},
  });
}

void Caller::add_elementwise() {
  const Gelu form = gelu_of(deck_);
  calls_.insert({
      {"swiglu_forward", [this](auto& w, auto& r, auto&) { kernels_.swiglu_forward(stream_, w[0], r[0]); }},
      {"swiglu_backward", [this](auto& w, auto& r, auto&) { kernels_.swiglu_backward(stream_, w[0], r[0], r[1]); }},
      {"gelu_forward", [this, form](auto& w, auto& r, auto&) { kernels_.gelu_forward(stream_, w[0], r[0], form); }},
      {"gelu_backward",
       [this, form](auto& w, auto& r, auto&) { kernels_.gelu_backward(stream_, w[0], r[0], r[1], form); }},
      {"bias_add", [this](auto& w, auto& r, auto&) { kernels_.bias_add(stream_, w[0], r[0], r[1]); }},
      {"bias_gradient",
       [this](auto& w, auto& r, auto&) { kernels_.bias_gradient(stream_, w[0], r[0], write_of(w[0], r)); }},
      {"bias_dropout",
       [this](auto& w, auto& r, auto&) {
         kernels_.bias_dropout(stream_, w[0], r[0], r.size() == 3 ? r[1] : Tensor{}, r.back(), dropout(r.back()));
       }},
      {"dropout_backward",
       [this](auto& w, auto& r, auto&) { kernels_.dropout_backward(stream_, w[0], r[0], r[1], dropout(r[1])); }},
      {"add", [this](auto& w, auto& r, auto&) { kernels_.add(stream_, w[0], r[0], r[1]); }},
      {"quantize",
       [this](auto& w, auto& r, auto&) {
         const bool both = w.size() == 3, transposed = w[0].rows() != r[0].rows();
         kernels_.quantize(stream_, both || !transposed ? w[0] : Tensor{},
                           both         ? w[1]
                           : transposed ? w[0]
                                        : Tensor{},
                           w.back(), r[0]);
       }},
      {"sum_parts", [this](auto& w, auto& r, auto&) { kernels_.sum_parts(stream_, w[0], r); }},
      {"convert", [this](auto& w, auto& r, auto&) { kernels_.convert(stream_, w[0], r[0]); }},
      {"copy", [this](auto& w, auto& r, auto&) { kernels_.copy(stream_, w[0], r[0]); }},
      {"fill", [this](auto& w, auto&, auto&) { kernels_.fill(stream_, w[0], 0); }},
      {"sum_squares", [this](auto& w, auto& r, auto&) { kernels_.sum_squares(stream_, w[0], r[1]); }},
      {"step_scalars", [this](auto& w, auto& r, auto&) { kernels_.step_scalars(stream_, w[0], r[0], {}); }},
      {"adamw",
       [this](auto& w, auto& r, auto&) {
         kernels_.adamw(stream_, w[0], w[1], w[2], optional(w, 3), r[3], r[4], {.weight_decay = 0.1});
       }},
  });
}

DropoutKey Caller::dropout(const Tensor& samples) const {
  return {.probability = 0.1, .seed = 1, .operation = 1, .sequence = deck_.model.seq_len * 64 / samples.numel()};
}

AttentionOptions Caller::attention(const Tensor& q, const Tensor& k) const {
  const std::int64_t sequence = deck_.model.seq_len, dim = q.extent[2];
  return {.shape = {q.rows() / sequence, sequence, q.extent[1], k.extent[1], dim},
          .scale = 1 / std::sqrt(static_cast<double>(dim)),
          .documents = deck_.data.document_mask ? documents_of(q.rows(), sequence) : 0};
}

void Caller::gemm(const Tensors& w, const Tensors& r, const std::string& form) const {
  if (form == "nt gelu") {
    return kernels_.gemm_gelu_forward(stream_, w[1], w[0], r[0], r[1], optional(r, 2), gelu_of(deck_));
  }
  if (form == "nn gelu") return kernels_.gemm_gelu_backward(stream_, w[0], r[0], r[1], r[2], gelu_of(deck_));
  const Write write = r.size() > 2 ? write_of(w[0], r) : Write::overwrite;
  Tensor a = r[0], b = r[1];
  const bool fp8 = is_fp8(a.dtype);
  if (fp8) a.scale = r[2].ptr<float>(), b.scale = r[3].ptr<float>();
  const bool bias = !fp8 && r.size() == (write == Write::accumulate ? 4 : 3);
  kernels_.gemm(stream_,
                form == "nn"   ? GemmForm::nn
                : form == "nt" ? GemmForm::nt
                               : GemmForm::tn,
                w[0], a, b, write, bias ? r[2] : Tensor{});
}

void Caller::embedding_backward(const Tensors& w, const Tensors& r) const {
  const Write write = write_of(w[0], r);
  const bool ordered = r.size() == (write == Write::accumulate ? 4 : 3);
  kernels_.embedding_backward(stream_, w[0], r[0], r[1], ordered ? r[2] : Tensor{}, {0, w[0].rows()}, write);
}

void Caller::rms_norm_backward(const Tensors& w, const Tensors& r) const {
  const Write write = write_of(w[1], r);
  const std::size_t at = r.size() == (write == Write::accumulate ? 6 : 5) ? 1 : 0;  // of d_y
  kernels_.rms_norm_backward(stream_, w[0], w[1], at == 1 ? r[0] : Tensor{}, r[at], r[at + 1], r[at + 2], r[at + 3],
                             write, w[2]);
}

void Caller::layer_norm_backward(const Tensors& w, const Tensors& r) const {
  const Write write = write_of(w[2], r);
  const std::size_t at = r.size() == (write == Write::accumulate ? 8 : 6) ? 1 : 0;
  kernels_.layer_norm_backward(stream_, w[0], w[1], w[2], at == 1 ? r[0] : Tensor{}, r[at], r[at + 1], r[at + 2],
                               r[at + 3], r[at + 4], write, w[3]);
}

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
  } else if (name == "attention_forward") {
    if (r.size() > 3) on.set_integers(r[3], starts_of_documents(deck_.model.seq_len));
  } else if (name == "attention_backward") {
    fill(r[5], 7);  // about the logarithm of a thousand
    if (r.size() > 6) on.set_integers(r[6], starts_of_documents(deck_.model.seq_len));
  } else if (name == "cross_entropy_stats" || name == "cross_entropy_with_gradient") {
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

}  // namespace llmtrain
