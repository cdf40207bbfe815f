// SPDX-License-Identifier: Apache-2.0
/// Derived values, each written once.
#include "llmtrain/driver/resolve.hpp"

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "llmtrain/base/host.hpp"

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

int share_of_cores(std::span<const std::string> allowed, int own) {
  const std::string& mine = allowed[static_cast<std::size_t>(own)];
  double share = 0;
  for (std::size_t core = 0; core < mine.size(); ++core) {
    if (mine[core] != '1') continue;
    const auto here = [core](const std::string& cores) { return core < cores.size() && cores[core] == '1'; };
    share += 1.0 / static_cast<double>(std::ranges::count_if(allowed, here));
  }
  return std::max(static_cast<int>(share + 1e-6), 1);  // thirds add up
}

int thread_count(int wanted, const MpiComm& node) {
  const std::vector<std::string> allowed = node ? node.all_gather(core_mask()) : std::vector{core_mask()};
  if (wanted > 0) return wanted;
  if (const char* given = std::getenv("OMP_NUM_THREADS"); given != nullptr && std::atoi(given) > 0) {
    return std::atoi(given);
  }
  return share_of_cores(allowed, node ? node.rank() : 0);
}

}  // namespace llmtrain
