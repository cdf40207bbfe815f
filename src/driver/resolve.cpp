// SPDX-License-Identifier: Apache-2.0
/// Derived values, each written once.
#include "llmtrain/driver/resolve.hpp"

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

}  // namespace llmtrain
