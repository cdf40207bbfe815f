// SPDX-License-Identifier: Apache-2.0
/// fp32 and bf16 matrix products by oneDNN, with primitives made once a shape. The only file that sees oneDNN.
#include <omp.h>

#include <array>
#include <map>
#include <mutex>
#include <unordered_map>

#include <oneapi/dnnl/dnnl_version.h>
#include <oneapi/dnnl/dnnl.hpp>

#include "cpu/bf16_rate.hpp"
#include "cpu/gemm.hpp"

namespace llmtrain {
namespace {

using dnnl::memory;

// The one place where the C++ interfaces of oneDNN 2.x and 3.x differ for us.
dnnl::matmul::primitive_desc describe_matmul(const dnnl::engine& engine, const memory::desc& a, const memory::desc& b,
                                             const memory::desc& d, const dnnl::primitive_attr& attributes) {
#if DNNL_VERSION_MAJOR >= 3
  return {engine, a, b, d, attributes};
#else
  return {dnnl::matmul::desc(a, b, d), attributes, engine};
#endif
}

/// A primitive with the memory objects that it is called with; only their data pointers change from call to call.
struct Matmul {
  dnnl::matmul primitive;
  memory a, b, d;
  std::unordered_map<int, memory> arguments;
};

/// Everything that a primitive depends on, the number of threads included: oneDNN plans its blocks for it.
using Key = std::array<std::int64_t, 11>;

memory::data_type type_of(const Tensor& x) {
  return x.dtype == DType::bf16 ? memory::data_type::bf16 : memory::data_type::f32;
}

class MatmulCache {
 public:
  void run(const Key& key, GemmForm form, GemmShape shape, bool accumulate, Tensor d, Tensor a, Tensor b) {
    const std::lock_guard lock(mutex_);  // memory objects hold the pointers of one call
    auto found = cache_.find(key);
    if (found == cache_.end()) {
      if (cache_.size() >= max_size)
        cache_.clear();  // lengths that grow by one (generation) must not grow memory forever
      found = cache_.emplace(key, make(key, form, shape, accumulate, type_of(a), type_of(d))).first;
    }
    Matmul& matmul = found->second;
    matmul.a.set_data_handle(a.data);
    matmul.b.set_data_handle(b.data);
    matmul.d.set_data_handle(d.data);
    matmul.primitive.execute(stream_, matmul.arguments);
    stream_.wait();
  }

 private:
  static constexpr std::size_t max_size = 1024;

  Matmul make(const Key& key, GemmForm form, GemmShape shape, bool accumulate, memory::data_type data,
              memory::data_type result) const {
    const std::int64_t lda = key[4], ldb = key[5], ldd = key[6];
    using Dims = memory::dims;
    const Dims a_strides = form == GemmForm::tn ? Dims{1, lda} : Dims{lda, 1};
    const Dims b_strides = form == GemmForm::nt ? Dims{1, ldb} : Dims{ldb, 1};
    const memory::desc a(Dims{shape.m, shape.k}, data, a_strides);
    const memory::desc b(Dims{shape.k, shape.n}, data, b_strides);
    const memory::desc d(Dims{shape.m, shape.n}, result, Dims{ldd, 1});
    dnnl::primitive_attr attributes;
    if (accumulate) {
      dnnl::post_ops sum;
      sum.append_sum(1.0F);
      attributes.set_post_ops(sum);
    }
    Matmul matmul{dnnl::matmul(describe_matmul(engine_, a, b, d, attributes)),
                  memory(a, engine_, nullptr),
                  memory(b, engine_, nullptr),
                  memory(d, engine_, nullptr),
                  {}};
    matmul.arguments = {{DNNL_ARG_SRC, matmul.a}, {DNNL_ARG_WEIGHTS, matmul.b}, {DNNL_ARG_DST, matmul.d}};
    return matmul;
  }

  std::mutex mutex_;
  dnnl::engine engine_{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream_{engine_};
  std::map<Key, Matmul> cache_;
};

/// The leading dimension that oneDNN is told; a single row may come with any, so it gets the usual one.
std::int64_t leading_of(const Tensor& x) { return x.rows() == 1 ? x.cols() : x.leading; }

}  // namespace

bool has_bf16_products() {
  static const bool has = [] {
    const auto is_there = [](dnnl::cpu_isa features) {  // bit sets
      const auto needed = static_cast<unsigned>(features);
      return (static_cast<unsigned>(dnnl::get_effective_cpu_isa()) & needed) == needed;
    };
    return is_there(dnnl::cpu_isa::avx512_core_amx) ||
           (is_there(dnnl::cpu_isa::avx512_core_bf16) && !bf16_vectors_are_slow());
  }();
  return has;
}

void gemm_dnnl(GemmForm form, GemmShape shape, Tensor d, Tensor a, Tensor b, Write write) {
  static MatmulCache cache;
  const bool accumulate = write == Write::accumulate;
  const Key key{static_cast<std::int64_t>(form),
                shape.m,
                shape.n,
                shape.k,
                leading_of(a),
                leading_of(b),
                leading_of(d),
                accumulate ? 1 : 0,
                static_cast<std::int64_t>(a.dtype),
                static_cast<std::int64_t>(d.dtype),
                omp_get_max_threads()};
  try {
    cache.run(key, form, shape, accumulate, d, a, b);
  } catch (const dnnl::error& error) {
    fail(ExitCode::internal, "oneDNN could not multiply D {} = A {} B {}: {}", d.describe(), a.describe(), b.describe(),
         error.what());
  }
}

}  // namespace llmtrain
