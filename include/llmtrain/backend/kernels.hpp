// SPDX-License-Identifier: Apache-2.0
/// Kernels: the operations of the model, as `op(stream, outputs, inputs, scalars)`. The public call checks shapes and
/// dtypes once and notes what is read and written (src/backend/kernels.cpp); a private virtual does the work
/// (kernels/<device>/). Data tensors have the compute dtype; statistics and sums are fp32, or fp64 where the data are
/// fp64 ("stats dtype" below). Accumulators of gradients have either of the two; a sum is formed in the stats dtype and
/// rounded once.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "llmtrain/backend/device.hpp"
#include "llmtrain/base/fp8.hpp"

namespace llmtrain {

class GemmTuner;

/// Whether an operation replaces or adds to its result.
enum class Write { overwrite, accumulate };

/// quantize: whether the scale is to be found, or is there from an earlier call for the same elements.
enum class Scale { unknown, known };

/// gemm: which operand is transposed; matrices are row-major.
enum class GemmForm {
  nt,  ///< D[m,n] = A[m,k] B[n,k]^T   forward: y = x W^T
  nn,  ///< D[m,n] = A[m,k] B[k,n]     data gradient: dx = dy W
  tn,  ///< D[m,n] = A[k,m]^T B[k,n]   weight gradient: dW = dy^T x
};

const char* name_of(GemmForm form);

/// The two forms of GeLU (arXiv 1606.08415): x Phi(x), and its approximation by tanh.
enum class Gelu { exact, tanh };

/// Direction of a rotation: forward or its inverse (its gradient).
enum class Rotation { forward, backward };

/// Geometry of one attention call. Tokens are [batch, sequence] flattened, batch-major.
struct AttentionShape {
  std::int64_t batch = 1;
  std::int64_t sequence = 0;
  std::int64_t heads = 0;     ///< query heads
  std::int64_t kv_heads = 0;  ///< divides heads; query head h uses kv head h / (heads / kv_heads)
  std::int64_t head_dim = 0;
};

struct AttentionOptions {
  AttentionShape shape;
  double scale = 1;         ///< of the scores, usually 1/sqrt(head_dim)
  std::int64_t window = 0;  ///< a token sees at most this many tokens, itself included; 0 = all before it
  double soft_cap = 0;      ///< scores become cap * tanh(score / cap); 0 = off
  /// With document masks: how many documents the batch has; each sequence begins with one of its own.
  std::int64_t documents = 0;
};

/// The vocabulary rows of one rank: local row i is token first + i; local rows at and beyond `valid` are padding and take no
/// part in the softmax.
struct VocabRange {
  std::int64_t first = 0;
  std::int64_t valid = 0;
};

/// Place of a block inside its global row-major matrix; 1-D parameters have one row.
struct GlobalBlock {
  std::int64_t first_row = 0;
  std::int64_t first_col = 0;
  std::int64_t global_cols = 0;
};

/// Key of a parameter's random values: equal in every layout.
struct InitKey {
  std::uint64_t seed = 0;
  std::uint64_t name_hash = 0;
};

/// Key of one dropout's random bits: with the sample, the token's index in it and the feature it names every bit, so that
/// they are equal in every layout and when an operation is repeated.
struct DropoutKey {
  double probability = 0;  ///< of dropping, in [0, 1)
  std::uint64_t seed = 0;
  std::int64_t operation = 0;    ///< number of the dropout in the model, below 2^16
  std::int64_t sequence = 0;     ///< tokens of a sample
  std::int64_t first_token = 0;  ///< of the tensor's first row in the micro-batch (its rows may be a slice)
};

/// Sums of one step over all ranks, an fp64 tensor [4] in this order; all-reduced once, at the end of the step.
struct StepTotals {
  double loss = 0;        ///< sum over target tokens of weight x loss
  double tokens = 0;      ///< sum of target weights
  double squares = 0;     ///< sum of squares of the summed gradient
  double non_finite = 0;  ///< ranks that saw a non-finite value
};
inline constexpr std::int64_t step_totals_size = 4;
static_assert(sizeof(StepTotals) == step_totals_size * sizeof(double));

/// Per-step scalars, an fp64 tensor [8] on the device in this order; written once a step by step_scalars, read by adamw.
struct StepScalars {
  double gradient_scale = 0;  ///< clip / tokens
  double lr = 0;
  double bias1 = 0;          ///< 1 - beta1^t
  double bias2 = 0;          ///< 1 - beta2^t
  double apply = 0;          ///< 1: update; 0: skip (non-finite)
  double loss = 0;           ///< mean over target tokens
  double gradient_norm = 0;  ///< of the mean gradient, before clipping
  double tokens = 0;
};
inline constexpr std::int64_t step_scalars_size = 8;
static_assert(sizeof(StepScalars) == step_scalars_size * sizeof(double));

/// What the host knows of a step beforehand. `step` is 1-based (Adam's t); clip 0 = off.
struct StepInputs {
  std::int64_t step = 1;
  double lr = 0;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double clip = 0;
};

struct AdamWOptions {
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1e-8;
  double weight_decay = 0;
};

/// Parts that sum_parts adds up before it rounds.
inline constexpr std::size_t sum_parts_at_once = 16;

class Kernels {
 public:
  virtual ~Kernels() = default;
  void set_observer(OpObserver* observer) { observer_ = observer; }

  /// Memory (uint8, of kernels_workspace() bytes) that operations may overwrite; must outlive their execution. One stream
  /// at a time issues operations.
  void use_workspace(Tensor workspace) { workspace_ = workspace; }

  /// Chooses among algorithms of gemm; null where there is nothing to choose.
  virtual GemmTuner* gemm_tuner() { return nullptr; }

  /// D (+)= op(A) op(B); D may have a wider dtype than A and B (fp32 weight gradients of bf16 data). `bias` [n] of D's
  /// dtype (optional; only where D is overwritten) is added to every row. A may be of either fp8 dtype and B
  /// E4M3, with their scales, all extents multiples of fp8_multiple: then the form is nt, D is bf16 (where the product may be
  /// rounded before it is added) or fp32, and there is no bias.
  void gemm(Stream s, GemmForm form, Tensor d, Tensor a, Tensor b, Write write = Write::overwrite, Tensor bias = {});

  /// x [m, n] = a b^T + bias [n], out = gelu(x); one pass where the device can (then GeLU sees x before it is rounded).
  void gemm_gelu_forward(Stream s, Tensor out, Tensor x, Tensor a, Tensor b, Tensor bias, Gelu form);
  /// d_x [m, n] = (d_y b) gelu'(x): the gradient of what a GeLU and then the product with b^T was made of.
  void gemm_gelu_backward(Stream s, Tensor d_x, Tensor d_y, Tensor b, Tensor x, Gelu form);

  /// out [tokens, hidden] (+)= table[ids - vocab.first], or 0 where the row is not of this rank.
  void embedding_forward(Stream s, Tensor out, Tensor ids, Tensor table, VocabRange vocab,
                         Write write = Write::overwrite);
  /// d_table[ids - vocab.first] (+)= d_out, rows of equal id added in order of position; `order` is the stable
  /// permutation that sorts ids (int32 [tokens]). Without it (learned positions) each row of the table looks through all ids.
  void embedding_backward(Stream s, Tensor d_table, Tensor d_out, Tensor ids, Tensor order, VocabRange vocab,
                          Write write);

  /// r = x + delta (delta optional; if given, r is stored in `residual`, which may alias x or delta); rstd = 1/sqrt(mean(r^2) + eps)
  /// [tokens], stats dtype; y = r * rstd * weight. Weight [n] may be shorter than a row of x: x [tokens, heads, n] is then
  /// normalised head by head, and rstd is [tokens * heads].
  void rms_norm_forward(Stream s, Tensor y, Tensor residual, Tensor rstd, Tensor x, Tensor delta, Tensor weight,
                        double eps);
  /// d_x = d_residual (optional) + gradient through the norm of its input `x`; d_x may alias d_residual or d_y.
  /// d_weight (+)= sum over tokens. `workspace`: uint8, norm_backward_workspace() bytes.
  void rms_norm_backward(Stream s, Tensor d_x, Tensor d_weight, Tensor d_residual, Tensor d_y, Tensor x, Tensor rstd,
                         Tensor weight, Write write, Tensor workspace);

  /// LayerNorm (arXiv 1607.06450) with the residual as in rms_norm: r = x + delta; mean and rstd = 1/sqrt(variance + eps)
  /// [tokens], stats dtype; y = (r - mean) * rstd * weight + bias.
  void layer_norm_forward(Stream s, Tensor y, Tensor residual, Tensor mean, Tensor rstd, Tensor x, Tensor delta,
                          Tensor weight, Tensor bias, double eps);
  /// As rms_norm_backward; d_weight and d_bias (+)= sums over tokens. `workspace`: uint8,
  /// layer_norm_backward_workspace() bytes.
  void layer_norm_backward(Stream s, Tensor d_x, Tensor d_weight, Tensor d_bias, Tensor d_residual, Tensor d_y,
                           Tensor x, Tensor mean, Tensor rstd, Tensor weight, Write write, Tensor workspace);

  /// Rotates the first `heads` of x [tokens, heads, head_dim] in place by position (half-rotation: dimension i pairs
  /// with i + head_dim/2). `table` [positions, head_dim/2, 2] holds cos and sin in stats dtype; positions int32 [tokens].
  void rope(Stream s, Tensor x, Tensor table, Tensor positions, Rotation direction);

  /// Causal attention. q, out [tokens, heads, head_dim]; k, v [tokens, kv_heads, head_dim]; any leading dimensions;
  /// lse [heads, tokens] stats dtype: log of the sum of exponentials of the scaled scores. `starts` (optional, int32
  /// [tokens]): document masks: index in its sequence of the first token of each token's document, beyond which it does
  /// not see.
  void attention_forward(Stream s, Tensor out, Tensor lse, Tensor q, Tensor k, Tensor v, Tensor starts,
                         const AttentionOptions& options);
  /// Overwrites d_q, d_k, d_v. `workspace`: uint8, attention_backward_workspace() bytes.
  void attention_backward(Stream s, Tensor d_q, Tensor d_k, Tensor d_v, Tensor d_out, Tensor q, Tensor k, Tensor v,
                          Tensor out, Tensor lse, Tensor starts, const AttentionOptions& options, Tensor workspace);

  /// Why the last attention call ran in plain kernels, many times slower than the library's; empty if it did not.
  virtual std::string attention_refusal() const { return {}; }

  /// out [tokens, n] = silu(gate) * up, with gate_up [tokens, 2 n] = [gate | up].
  void swiglu_forward(Stream s, Tensor out, Tensor gate_up);
  /// d_gate_up may alias gate_up.
  void swiglu_backward(Stream s, Tensor d_gate_up, Tensor d_out, Tensor gate_up);

  /// out [tokens, n] = gelu(x)
  void gelu_forward(Stream s, Tensor out, Tensor x, Gelu form);
  /// d_x = d_out gelu'(x); d_x may alias d_out or x.
  void gelu_backward(Stream s, Tensor d_x, Tensor d_out, Tensor x, Gelu form);

  /// out [tokens, n] = x + bias [n]; may alias.
  void bias_add(Stream s, Tensor out, Tensor x, Tensor bias);
  /// d_bias [n] (+)= sum over tokens of d_out, in an order that depends on the sizes only.
  void bias_gradient(Stream s, Tensor d_bias, Tensor d_out, Write write);

  /// out [tokens, n] = dropout(x + bias): kept elements / (1 - probability), the others 0; bias optional; may alias.
  /// `samples` int64 [sequences of the micro-batch]: global number of each one.
  void bias_dropout(Stream s, Tensor out, Tensor x, Tensor bias, Tensor samples, const DropoutKey& key);
  /// d_x = d_out where bias_dropout with this key kept, / (1 - probability); may alias.
  void dropout_backward(Stream s, Tensor d_x, Tensor d_out, Tensor samples, const DropoutKey& key);

  /// Per token of logits [tokens, rows]: stats [3, tokens] (stats dtype) = local maximum, sum of exp(logit - maximum), and
  /// the target's logit (0 where the target is not of this rank); padding columns are not read. Targets int32.
  void cross_entropy_stats(Stream s, Tensor stats, Tensor logits, Tensor targets, VocabRange vocab);
  /// stats [3, tokens] of the whole vocabulary from those of its parts [ranks, 3, tokens], combined in rank order.
  void cross_entropy_merge(Stream s, Tensor stats, Tensor parts);
  /// totals[0] += sum of weights * loss, totals[1] += sum of weights (StepTotals; fp64, in token order). weights fp32.
  void cross_entropy_loss(Stream s, Tensor totals, Tensor stats, Tensor weights);
  /// logits := weights * (softmax - one_hot(target)) in place, with stats of the whole vocabulary; padding columns := 0.
  void cross_entropy_gradient(Stream s, Tensor logits, Tensor stats, Tensor targets, Tensor weights, VocabRange vocab);
  /// cross_entropy_stats, then cross_entropy_gradient with them, for logits of the whole vocabulary: in one pass over
  /// memory where the device can.
  void cross_entropy_with_gradient(Stream s, Tensor stats, Tensor logits, Tensor targets, Tensor weights,
                                   VocabRange vocab);

  void add(Stream s, Tensor out, Tensor a, Tensor b);  ///< out = a + b; may alias
  /// out (+)= parts[0] + parts[1] + ..., in this order in the stats dtype and rounded once (once every sum_parts_at_once
  /// parts); dense, of one size. `out` may be one of the first parts; these may be narrower.
  void sum_parts(Stream s, Tensor out, std::span<const Tensor> parts, Write write = Write::overwrite);
  /// q [rows, cols] and q_transposed [cols, rows], either of which may be absent, := x [rows, cols] (bf16) / scale, rounded
  /// to nearest even. `scale`, fp32 [1], := the largest |x| / the fp8 dtype's largest number, so that none is too large (1
  /// where x is 0), unless it is there from an earlier call for this x. What is not finite in x makes NaN. Both dense, of one
  /// fp8 dtype; extents multiples of fp8_multiple.
  void quantize(Stream s, Tensor q, Tensor q_transposed, Tensor scale, Tensor x, Scale known = Scale::unknown);
  void convert(Stream s, Tensor destination, Tensor source);  ///< between floating dtypes, rounding to nearest even
  void copy(Stream s, Tensor destination, Tensor source);     ///< equal dtype and shape, any leading dimensions
  void fill(Stream s, Tensor destination, double value);

  /// destination [rows, cols] := N(0, stddev^2) from (key, global element index), the same bits in every layout and on
  /// every device.
  void init_normal(Stream s, Tensor destination, InitKey key, GlobalBlock block, double stddev);

  /// totals[2] += sum of squares of x (fp64, in an order that depends on x's size only); totals[3] := 1 if not finite.
  void sum_squares(Stream s, Tensor totals, Tensor x);
  /// Derives the step's scalars from its totals (design: sum over tokens divided once by their global number).
  void step_scalars(Stream s, Tensor scalars, Tensor totals, const StepInputs& inputs);
  /// AdamW (arXiv 1711.05101) on flat ranges: master, m, v, gradient [n]; also stores the new value in `weights`
  /// (optional, a lower precision copy). Nothing changes where scalars.apply is 0.
  void adamw(Stream s, Tensor master, Tensor m, Tensor v, Tensor weights, Tensor gradient, Tensor scalars,
             const AdamWOptions& options);

 protected:
  const Tensor& workspace() const { return workspace_; }
  /// Whether cuBLASLt has a GeLU of this form that matrix products can end with, or its gradient, on x.
  static bool is_gelu_of_products(const Tensor& x, Gelu form);

 private:
  virtual void do_gemm(Stream s, GemmForm form, Tensor d, Tensor a, Tensor b, Write write, Tensor bias) = 0;
  /// Whether the two that follow exist for x.
  virtual bool fuses_gelu(const Tensor& x, Gelu form) const = 0;
  virtual void do_gemm_gelu_forward(Stream, Tensor, Tensor, Tensor, Tensor, Tensor) { LLMTRAIN_CHECK(false); }
  virtual void do_gemm_gelu_backward(Stream, Tensor, Tensor, Tensor, Tensor) { LLMTRAIN_CHECK(false); }
  virtual void do_embedding_forward(Stream s, Tensor out, Tensor ids, Tensor table, VocabRange vocab, Write write) = 0;
  virtual void do_embedding_backward(Stream s, Tensor d_table, Tensor d_out, Tensor ids, Tensor order, VocabRange vocab,
                                     Write write) = 0;
  virtual void do_rms_norm_forward(Stream s, Tensor y, Tensor residual, Tensor rstd, Tensor x, Tensor delta,
                                   Tensor weight, double eps) = 0;
  virtual void do_rms_norm_backward(Stream s, Tensor d_x, Tensor d_weight, Tensor d_residual, Tensor d_y, Tensor x,
                                    Tensor rstd, Tensor weight, Write write, Tensor workspace) = 0;
  virtual void do_layer_norm_forward(Stream s, Tensor y, Tensor residual, Tensor mean, Tensor rstd, Tensor x,
                                     Tensor delta, Tensor weight, Tensor bias, double eps) = 0;
  virtual void do_layer_norm_backward(Stream s, Tensor d_x, Tensor d_weight, Tensor d_bias, Tensor d_residual,
                                      Tensor d_y, Tensor x, Tensor mean, Tensor rstd, Tensor weight, Write write,
                                      Tensor workspace) = 0;
  virtual void do_rope(Stream s, Tensor x, Tensor table, Tensor positions, Rotation direction) = 0;
  virtual void do_attention_forward(Stream s, Tensor out, Tensor lse, Tensor q, Tensor k, Tensor v, Tensor starts,
                                    const AttentionOptions& options) = 0;
  virtual void do_attention_backward(Stream s, Tensor d_q, Tensor d_k, Tensor d_v, Tensor d_out, Tensor q, Tensor k,
                                     Tensor v, Tensor out, Tensor lse, Tensor starts, const AttentionOptions& options,
                                     Tensor workspace) = 0;
  virtual void do_swiglu_forward(Stream s, Tensor out, Tensor gate_up) = 0;
  virtual void do_swiglu_backward(Stream s, Tensor d_gate_up, Tensor d_out, Tensor gate_up) = 0;
  virtual void do_gelu_forward(Stream s, Tensor out, Tensor x, Gelu form) = 0;
  virtual void do_gelu_backward(Stream s, Tensor d_x, Tensor d_out, Tensor x, Gelu form) = 0;
  virtual void do_bias_add(Stream s, Tensor out, Tensor x, Tensor bias) = 0;
  virtual void do_bias_gradient(Stream s, Tensor d_bias, Tensor d_out, Write write) = 0;
  virtual void do_bias_dropout(Stream s, Tensor out, Tensor x, Tensor bias, Tensor samples, const DropoutKey& key) = 0;
  virtual void do_dropout_backward(Stream s, Tensor d_x, Tensor d_out, Tensor samples, const DropoutKey& key) = 0;
  virtual void do_cross_entropy_stats(Stream s, Tensor stats, Tensor logits, Tensor targets, VocabRange vocab) = 0;
  virtual void do_cross_entropy_merge(Stream s, Tensor stats, Tensor parts) = 0;
  virtual void do_cross_entropy_loss(Stream s, Tensor totals, Tensor stats, Tensor weights) = 0;
  virtual void do_cross_entropy_gradient(Stream s, Tensor logits, Tensor stats, Tensor targets, Tensor weights,
                                         VocabRange vocab) = 0;
  virtual void do_cross_entropy_with_gradient(Stream s, Tensor stats, Tensor logits, Tensor targets, Tensor weights,
                                              VocabRange vocab) = 0;
  virtual void do_add(Stream s, Tensor out, Tensor a, Tensor b) = 0;
  virtual void do_sum_parts(Stream s, Tensor out, std::span<const Tensor> parts, Write write) = 0;
  virtual void do_quantize(Stream s, Tensor q, Tensor q_transposed, Tensor scale, Tensor x, Scale known) = 0;
  virtual void do_convert(Stream s, Tensor destination, Tensor source) = 0;
  virtual void do_copy(Stream s, Tensor destination, Tensor source) = 0;
  virtual void do_fill(Stream s, Tensor destination, double value) = 0;
  virtual void do_init_normal(Stream s, Tensor destination, InitKey key, GlobalBlock block, double stddev) = 0;
  virtual void do_sum_squares(Stream s, Tensor totals, Tensor x) = 0;
  virtual void do_step_scalars(Stream s, Tensor scalars, Tensor totals, const StepInputs& inputs) = 0;
  virtual void do_adamw(Stream s, Tensor master, Tensor m, Tensor v, Tensor weights, Tensor gradient, Tensor scalars,
                        const AdamWOptions& options) = 0;

  void note(const char* name, Stream s, std::initializer_list<Tensor> writes, std::initializer_list<Tensor> reads,
            double flops = 0, const char* form = "") {
    note(name, s, std::span(writes.begin(), writes.size()), std::span(reads.begin(), reads.size()), flops, form);
  }
  void note(const char* name, Stream s, std::span<const Tensor> writes, std::span<const Tensor> reads, double flops = 0,
            const char* form = "");
  OpObserver* observer_ = nullptr;
  Tensor workspace_;
};

}  // namespace llmtrain
