// SPDX-License-Identifier: Apache-2.0
/// Who reads which file of a checkpoint.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace llmtrain {

/// So many bytes of a file are wanted by a rank.
struct FileNeed {
  int rank = 0;
  std::size_t file = 0;
  std::int64_t bytes = 0;
};

/// A rank for each file of these sizes: the one that needs most of it, as long as no rank has much more to read than its
/// share (a tenth) or than one file; the rest goes to whoever has least. The same from the same arguments.
std::vector<int> deal_files(std::span<const std::int64_t> sizes, std::span<const FileNeed> needs, int ranks);

}  // namespace llmtrain
