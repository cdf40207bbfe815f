// SPDX-License-Identifier: Apache-2.0
/// Extents by address; a later write replaces what it covers.
#include "file_image.hpp"

#include <algorithm>
#include <cstring>

namespace llmtrain {

void FileImage::cut(std::uint64_t begin, std::uint64_t end) {
  auto it = extents_.upper_bound(begin);
  if (it != extents_.begin()) --it;
  while (it != extents_.end() && it->first < end) {
    const std::uint64_t first = it->first;
    const std::uint64_t last = first + it->second.bytes;
    if (last <= begin) {
      ++it;
      continue;
    }
    const Extent old = std::move(it->second);
    it = extents_.erase(it);
    const bool borrowed = old.copy.empty();
    if (first < begin) write(first, old.data, static_cast<std::size_t>(begin - first), borrowed);
    if (last > end) write(end, old.data + (end - first), static_cast<std::size_t>(last - end), borrowed);
  }
}

void FileImage::write(std::uint64_t address, const void* data, std::size_t bytes, bool borrow) {
  if (bytes == 0) return;
  cut(address, address + bytes);
  const auto* from = static_cast<const std::byte*>(data);
  Extent extent{from, bytes, {}};
  if (!borrow) {
    extent.copy.assign(from, from + bytes);
    extent.data = extent.copy.data();
  }
  extents_.emplace(address, std::move(extent));
  size_ = std::max(size_, address + bytes);
}

FileFacts FileImage::facts() const {
  Digest digest;
  const std::vector<std::byte> zeros(1 << 16);
  std::uint64_t at = 0;
  const auto fill = [&](std::uint64_t to) {
    for (; at < to; at += std::min<std::uint64_t>(to - at, zeros.size())) {
      digest.add(zeros.data(), static_cast<std::size_t>(std::min<std::uint64_t>(to - at, zeros.size())));
    }
  };
  for (const auto& [address, extent] : extents_) {
    if (address >= size_) break;
    fill(address);
    const auto bytes = std::min<std::uint64_t>(extent.bytes, size_ - address);
    digest.add(extent.data, static_cast<std::size_t>(bytes));
    at = address + bytes;
  }
  fill(size_);
  return {static_cast<std::int64_t>(size_), digest.hex()};
}

}  // namespace llmtrain
