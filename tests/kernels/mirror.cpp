// SPDX-License-Identifier: Apache-2.0
/// Regions of host memory, their copies on the device, and every operation in between.
#include "mirror.hpp"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "llmtrain/backend/workspace.hpp"

namespace llmtrain::test {

namespace {

constexpr std::int64_t memory_bytes = std::int64_t{512} << 20;
constexpr std::uintptr_t alignment = 256;  // addresses keep their remainder, so that alignment is the tests' own

struct Region {
  std::uintptr_t begin, end;  // host addresses
  char* device = nullptr;     // of begin
};

Region region_of(const Tensor& t) {
  const auto begin = reinterpret_cast<std::uintptr_t>(t.data);
  const std::int64_t elements = (t.rows() - 1) * t.leading + t.cols();
  return {begin, begin + static_cast<std::uintptr_t>(elements * size_of(t.dtype))};
}

}  // namespace

MirrorKernels::MirrorKernels(std::unique_ptr<Device> device)
    : device_(std::move(device)), stream_(device_->make_stream("test")) {
  memory_ = device_->allocate(memory_bytes, MemorySpace::device);
  const std::int64_t bytes = kernels_workspace(device_->kind());
  workspace_memory_ = device_->allocate(bytes, MemorySpace::device);
  require(memory_ != nullptr && workspace_memory_ != nullptr, ExitCode::out_of_memory, "no memory for tests on {}",
          device_->describe());
  device_->kernels().use_workspace(Tensor::dense(workspace_memory_, DType::uint8, {bytes}));
}

MirrorKernels::~MirrorKernels() {
  device_->release(memory_, MemorySpace::device);
  device_->release(workspace_memory_, MemorySpace::device);
}

template <class Run>
void MirrorKernels::mirrored(std::span<Tensor* const> tensors, Run&& run) {
  std::vector<Region> regions;
  for (const Tensor* t : tensors) {
    if (*t && t->numel() > 0) regions.push_back(region_of(*t));
  }
  std::sort(regions.begin(), regions.end(), [](const Region& a, const Region& b) { return a.begin < b.begin; });
  std::vector<Region> merged;
  for (const Region& r : regions) {
    if (merged.empty() || r.begin >= merged.back().end) {
      merged.push_back(r);
    } else {
      merged.back().end = std::max(merged.back().end, r.end);
    }
  }
  char* free = static_cast<char*>(memory_);
  for (Region& r : merged) {
    r.device = free + r.begin % alignment;
    const std::uintptr_t used = (r.begin % alignment + r.end - r.begin + alignment - 1) / alignment * alignment;
    free += used;
    LLMTRAIN_CHECK(free <= static_cast<char*>(memory_) + memory_bytes);
  }
  const auto bytes = [](const Region& r) {
    return Tensor::dense(r.device, DType::uint8, {static_cast<std::int64_t>(r.end - r.begin)});
  };
  for (const Region& r : merged) device_->upload(stream_, bytes(r), reinterpret_cast<const void*>(r.begin));
  for (Tensor* t : tensors) {
    if (!*t || t->numel() == 0) continue;
    const auto at = reinterpret_cast<std::uintptr_t>(t->data);
    const auto home =
        std::find_if(merged.begin(), merged.end(), [at](const Region& r) { return at >= r.begin && at < r.end; });
    t->data = home->device + (at - home->begin);
  }
  run(device_->kernels());
  for (const Region& r : merged) device_->download(stream_, reinterpret_cast<void*>(r.begin), bytes(r));
  stream_.synchronize();
}

void MirrorKernels::do_gemm(Stream, GemmForm form, Tensor d, Tensor a, Tensor b, Write write, Tensor bias) {
  Tensor scale_a = a.scale_tensor(), scale_b = b.scale_tensor();
  mirrored({&d, &a, &b, &bias, &scale_a, &scale_b}, [&](Kernels& on) {
    if (scale_a) a.scale = scale_a.ptr<float>();
    if (scale_b) b.scale = scale_b.ptr<float>();
    on.gemm(stream_, form, d, a, b, write, bias);
  });
}

bool MirrorKernels::fuses_gelu(const Tensor& x, Gelu form) const {
  return device_->kind() == DeviceKind::cuda && is_gelu_of_products(x, form);
}

void MirrorKernels::do_gemm_gelu_forward(Stream, Tensor out, Tensor x, Tensor a, Tensor b, Tensor bias) {
  mirrored({&out, &x, &a, &b, &bias},
           [&](Kernels& on) { on.gemm_gelu_forward(stream_, out, x, a, b, bias, Gelu::tanh); });
}

void MirrorKernels::do_gemm_gelu_backward(Stream, Tensor d_x, Tensor d_y, Tensor b, Tensor x) {
  mirrored({&d_x, &d_y, &b, &x}, [&](Kernels& on) { on.gemm_gelu_backward(stream_, d_x, d_y, b, x, Gelu::tanh); });
}

void MirrorKernels::do_embedding_forward(Stream, Tensor out, Tensor ids, Tensor table, VocabRange vocab, Write write) {
  mirrored({&out, &ids, &table}, [&](Kernels& on) { on.embedding_forward(stream_, out, ids, table, vocab, write); });
}

void MirrorKernels::do_embedding_backward(Stream, Tensor d_table, Tensor d_out, Tensor ids, Tensor order,
                                          VocabRange vocab, Write write) {
  mirrored({&d_table, &d_out, &ids, &order},
           [&](Kernels& on) { on.embedding_backward(stream_, d_table, d_out, ids, order, vocab, write); });
}

void MirrorKernels::do_rms_norm_forward(Stream, Tensor y, Tensor residual, Tensor rstd, Tensor x, Tensor delta,
                                        Tensor weight, double eps) {
  mirrored({&y, &residual, &rstd, &x, &delta, &weight},
           [&](Kernels& on) { on.rms_norm_forward(stream_, y, residual, rstd, x, delta, weight, eps); });
}

void MirrorKernels::do_rms_norm_backward(Stream, Tensor d_x, Tensor d_weight, Tensor d_residual, Tensor d_y, Tensor x,
                                         Tensor rstd, Tensor weight, Write write, Tensor workspace) {
  mirrored({&d_x, &d_weight, &d_residual, &d_y, &x, &rstd, &weight, &workspace}, [&](Kernels& on) {
    on.rms_norm_backward(stream_, d_x, d_weight, d_residual, d_y, x, rstd, weight, write, workspace);
  });
}

void MirrorKernels::do_layer_norm_forward(Stream, Tensor y, Tensor residual, Tensor mean, Tensor rstd, Tensor x,
                                          Tensor delta, Tensor weight, Tensor bias, double eps) {
  mirrored({&y, &residual, &mean, &rstd, &x, &delta, &weight, &bias},
           [&](Kernels& on) { on.layer_norm_forward(stream_, y, residual, mean, rstd, x, delta, weight, bias, eps); });
}

void MirrorKernels::do_layer_norm_backward(Stream, Tensor d_x, Tensor d_weight, Tensor d_bias, Tensor d_residual,
                                           Tensor d_y, Tensor x, Tensor mean, Tensor rstd, Tensor weight, Write write,
                                           Tensor workspace) {
  mirrored({&d_x, &d_weight, &d_bias, &d_residual, &d_y, &x, &mean, &rstd, &weight, &workspace}, [&](Kernels& on) {
    on.layer_norm_backward(stream_, d_x, d_weight, d_bias, d_residual, d_y, x, mean, rstd, weight, write, workspace);
  });
}

void MirrorKernels::do_rope(Stream, Tensor x, Tensor table, Tensor positions, Rotation direction) {
  mirrored({&x, &table, &positions}, [&](Kernels& on) { on.rope(stream_, x, table, positions, direction); });
}

void MirrorKernels::do_attention_forward(Stream, Tensor out, Tensor lse, Tensor q, Tensor k, Tensor v, Tensor starts,
                                         const AttentionOptions& options) {
  mirrored({&out, &lse, &q, &k, &v, &starts},
           [&](Kernels& on) { on.attention_forward(stream_, out, lse, q, k, v, starts, options); });
}

void MirrorKernels::do_attention_backward(Stream, Tensor d_q, Tensor d_k, Tensor d_v, Tensor d_out, Tensor q, Tensor k,
                                          Tensor v, Tensor out, Tensor lse, Tensor starts,
                                          const AttentionOptions& options, Tensor workspace) {
  mirrored({&d_q, &d_k, &d_v, &d_out, &q, &k, &v, &out, &lse, &starts, &workspace}, [&](Kernels& on) {
    on.attention_backward(stream_, d_q, d_k, d_v, d_out, q, k, v, out, lse, starts, options, workspace);
  });
}

void MirrorKernels::do_swiglu_forward(Stream, Tensor out, Tensor gate_up) {
  mirrored({&out, &gate_up}, [&](Kernels& on) { on.swiglu_forward(stream_, out, gate_up); });
}

void MirrorKernels::do_swiglu_backward(Stream, Tensor d_gate_up, Tensor d_out, Tensor gate_up) {
  mirrored({&d_gate_up, &d_out, &gate_up},
           [&](Kernels& on) { on.swiglu_backward(stream_, d_gate_up, d_out, gate_up); });
}

void MirrorKernels::do_gelu_forward(Stream, Tensor out, Tensor x, Gelu form) {
  mirrored({&out, &x}, [&](Kernels& on) { on.gelu_forward(stream_, out, x, form); });
}

void MirrorKernels::do_gelu_backward(Stream, Tensor d_x, Tensor d_out, Tensor x, Gelu form) {
  mirrored({&d_x, &d_out, &x}, [&](Kernels& on) { on.gelu_backward(stream_, d_x, d_out, x, form); });
}

void MirrorKernels::do_bias_add(Stream, Tensor out, Tensor x, Tensor bias) {
  mirrored({&out, &x, &bias}, [&](Kernels& on) { on.bias_add(stream_, out, x, bias); });
}

void MirrorKernels::do_bias_gradient(Stream, Tensor d_bias, Tensor d_out, Write write) {
  mirrored({&d_bias, &d_out}, [&](Kernels& on) { on.bias_gradient(stream_, d_bias, d_out, write); });
}

void MirrorKernels::do_bias_dropout(Stream, Tensor out, Tensor x, Tensor bias, Tensor samples, const DropoutKey& key) {
  mirrored({&out, &x, &bias, &samples}, [&](Kernels& on) { on.bias_dropout(stream_, out, x, bias, samples, key); });
}

void MirrorKernels::do_dropout_backward(Stream, Tensor d_x, Tensor d_out, Tensor samples, const DropoutKey& key) {
  mirrored({&d_x, &d_out, &samples}, [&](Kernels& on) { on.dropout_backward(stream_, d_x, d_out, samples, key); });
}

void MirrorKernels::do_cross_entropy_stats(Stream, Tensor stats, Tensor logits, Tensor targets, VocabRange vocab) {
  mirrored({&stats, &logits, &targets},
           [&](Kernels& on) { on.cross_entropy_stats(stream_, stats, logits, targets, vocab); });
}

void MirrorKernels::do_cross_entropy_merge(Stream, Tensor stats, Tensor parts) {
  mirrored({&stats, &parts}, [&](Kernels& on) { on.cross_entropy_merge(stream_, stats, parts); });
}

void MirrorKernels::do_cross_entropy_loss(Stream, Tensor totals, Tensor stats, Tensor weights) {
  mirrored({&totals, &stats, &weights}, [&](Kernels& on) { on.cross_entropy_loss(stream_, totals, stats, weights); });
}

void MirrorKernels::do_cross_entropy_gradient(Stream, Tensor logits, Tensor stats, Tensor targets, Tensor weights,
                                              VocabRange vocab) {
  mirrored({&logits, &stats, &targets, &weights},
           [&](Kernels& on) { on.cross_entropy_gradient(stream_, logits, stats, targets, weights, vocab); });
}

void MirrorKernels::do_cross_entropy_with_gradient(Stream, Tensor stats, Tensor logits, Tensor targets, Tensor weights,
                                                   VocabRange vocab) {
  mirrored({&stats, &logits, &targets, &weights},
           [&](Kernels& on) { on.cross_entropy_with_gradient(stream_, stats, logits, targets, weights, vocab); });
}

void MirrorKernels::do_add(Stream, Tensor out, Tensor a, Tensor b) {
  mirrored({&out, &a, &b}, [&](Kernels& on) { on.add(stream_, out, a, b); });
}

void MirrorKernels::do_sum_parts(Stream, Tensor out, std::span<const Tensor> parts, Write write) {
  std::vector<Tensor> copies(parts.begin(), parts.end());
  std::vector<Tensor*> all{&out};
  for (Tensor& copy : copies) all.push_back(&copy);
  mirrored(all, [&](Kernels& on) { on.sum_parts(stream_, out, copies, write); });
}
void MirrorKernels::do_quantize(Stream, Tensor q, Tensor q_transposed, Tensor scale, Tensor x, Scale known) {
  mirrored({&q, &q_transposed, &scale, &x},
           [&](Kernels& on) { on.quantize(stream_, q, q_transposed, scale, x, known); });
}

void MirrorKernels::do_convert(Stream, Tensor destination, Tensor source) {
  mirrored({&destination, &source}, [&](Kernels& on) { on.convert(stream_, destination, source); });
}

void MirrorKernels::do_copy(Stream, Tensor destination, Tensor source) {
  mirrored({&destination, &source}, [&](Kernels& on) { on.copy(stream_, destination, source); });
}

void MirrorKernels::do_fill(Stream, Tensor destination, double value) {
  mirrored({&destination}, [&](Kernels& on) { on.fill(stream_, destination, value); });
}

void MirrorKernels::do_init_normal(Stream, Tensor destination, InitKey key, GlobalBlock block, double stddev) {
  mirrored({&destination}, [&](Kernels& on) { on.init_normal(stream_, destination, key, block, stddev); });
}

void MirrorKernels::do_sum_squares(Stream, Tensor totals, Tensor x) {
  mirrored({&totals, &x}, [&](Kernels& on) { on.sum_squares(stream_, totals, x); });
}

void MirrorKernels::do_step_scalars(Stream, Tensor scalars, Tensor totals, const StepInputs& inputs) {
  mirrored({&scalars, &totals}, [&](Kernels& on) { on.step_scalars(stream_, scalars, totals, inputs); });
}

void MirrorKernels::do_adamw(Stream, Tensor master, Tensor m, Tensor v, Tensor weights, Tensor gradient, Tensor scalars,
                             const AdamWOptions& options) {
  mirrored({&master, &m, &v, &weights, &gradient, &scalars},
           [&](Kernels& on) { on.adamw(stream_, master, m, v, weights, gradient, scalars, options); });
}

}  // namespace llmtrain::test
