// SPDX-License-Identifier: Apache-2.0
/// Operations as a trace notes them, and how they are called again one by one, on operands of their own.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "llmtrain/backend/kernels.hpp"
#include "llmtrain/backend/observer.hpp"
#include "llmtrain/config/deck.hpp"

namespace llmtrain {

/// Operations of one kind: equal names, dtypes and shapes. Operands have the addresses of the first of them.
struct Operation {
  std::string name, form;
  std::vector<Tensor> writes, reads;
  double flops = 0, bytes = 0;
  std::int64_t calls = 0;

  /// What stands in a table: the largest operand tells most.
  std::string shape() const;
};

/// Collects the operations of a trace.
class Operations final : public OpObserver {
 public:
  void on_operation(const OpNote& note) override;
  void on_batch(const BatchNote&) override {}

  std::vector<Operation>& list() { return list_; }

 private:
  std::map<std::string, std::size_t> places_;
  std::vector<Operation> list_;
};

/// Device memory for the operands of one call, with random contents. What overlaps in the model overlaps here too.
class Operands {
 public:
  Operands(Device& device, Stream stream, const Operation& operation, std::uint64_t seed);
  ~Operands();
  Operands(const Operands&) = delete;
  Operands& operator=(const Operands&) = delete;

  /// Bytes that a set of operands takes.
  static double bytes_of(const Operation& operation);

  using ByIndex = std::function<std::int64_t(std::int64_t)>;
  void set_integers(const Tensor& t, const ByIndex& value);
  void set(const Tensor& t, const std::vector<double>& values);
  std::int64_t below(std::int64_t limit);  ///< a random number from 0 on

  std::vector<Tensor> writes, reads;

 private:
  void place(std::span<Tensor*> tensors, const char* end);
  void fill_fp8(Tensor matrix);  ///< random numbers, rounded

  Device& device_;
  Stream stream_;
  std::mt19937_64 random_;
  std::vector<void*> owned_;
};

/// An operation's call, from what it notes. The notes leave out optional tensors that are absent.
class Caller {
 public:
  /// `deck` is the model of which the operations come; must outlive the caller.
  Caller(Device& device, Stream stream, const Deck& deck);

  bool knows(const Operation& operation) const { return calls_.contains(operation.name); }
  void call(const Operation& operation, const Operands& on) const {
    calls_.at(operation.name)(on.writes, on.reads, operation.form);
  }
  /// Contents that are not any numbers: token ids, positions, statistics, second moments.
  void prepare(const Operation& operation, Operands& on) const;

 private:
  using Tensors = std::vector<Tensor>;
  using Call = std::function<void(const Tensors& writes, const Tensors& reads, const std::string& form)>;

  void add_layers();
  void add_loss();
  void add_elementwise();
  VocabRange vocab() const { return {0, deck_.model.vocab}; }
  DropoutKey dropout(const Tensor& samples) const;
  AttentionOptions attention(const Tensor& q, const Tensor& k) const;
  void gemm(const Tensors& w, const Tensors& r, const std::string& form) const;
  void embedding_backward(const Tensors& w, const Tensors& r) const;
  void rms_norm_backward(const Tensors& w, const Tensors& r) const;
  void layer_norm_backward(const Tensors& w, const Tensors& r) const;

  Kernels& kernels_;
  Stream stream_;
  const Deck& deck_;
  std::map<std::string, Call> calls_;
};

}  // namespace llmtrain
