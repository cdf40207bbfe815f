// SPDX-License-Identifier: Apache-2.0
/// Derived values, each written once.
#include "llmtrain/driver/resolve.hpp"

#include <sched.h>

#include <algorithm>
#include <cstdlib>

namespace llmtrain {

Deck resolve(const Deck& deck, std::int64_t tokenizer_vocab, DeviceKind device) {
  Deck out = deck;
  const bool gpu = device == DeviceKind::cuda;
  out.run.device = gpu ? DeviceChoice::cuda : DeviceChoice::cpu;
  if (out.model.vocab == 0) out.model.vocab = tokenizer_vocab;
  if (out.model.vocab_multiple == 0) out.model.vocab_multiple = gpu ? 128 : 16;
  if (out.model.head_dim == 0) out.model.head_dim = out.model.hidden / out.model.heads;
  if (out.data.seed == 0) out.data.seed = out.run.seed;
  if (out.data.samples == 0) out.data.samples = out.run.steps * out.schedule.global_batch;
  if (out.checkpoint.dir.empty()) out.checkpoint.dir = out.run.dir + "/checkpoints";
  return out;
}

int thread_count(int wanted, int local_ranks) {
  if (wanted > 0) return wanted;
  if (const char* given = std::getenv("OMP_NUM_THREADS"); given != nullptr && std::atoi(given) > 0) {
    return std::atoi(given);
  }
  cpu_set_t allowed;
  const int cores = sched_getaffinity(0, sizeof allowed, &allowed) == 0 ? CPU_COUNT(&allowed) : 1;
  return std::max(cores / local_ranks, 1);
}

}  // namespace llmtrain
