// SPDX-License-Identifier: Apache-2.0
/// Clocks, byte ranges and the message of a hazard.
#include "llmtrain/backend/hazards.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "llmtrain/base/error.hpp"
#include "llmtrain/base/host.hpp"

namespace llmtrain {

namespace {

/// First byte of a tensor and the one after its last, gaps included.
std::pair<std::uintptr_t, std::uintptr_t> bytes_of(const Tensor& tensor) {
  const auto begin = reinterpret_cast<std::uintptr_t>(tensor.data);
  if (tensor.numel() == 0) return {begin, begin};
  const std::int64_t elements = (tensor.rows() - 1) * tensor.leading + tensor.cols();
  return {begin, begin + static_cast<std::uintptr_t>(elements * size_of(tensor.dtype))};
}

}  // namespace

void LeaseBook::take(std::uintptr_t begin, std::uintptr_t end) {
  auto at = returned_.upper_bound(begin);
  if (at != returned_.begin()) --at;
  while (at != returned_.end() && at->second.begin < end) {
    const Bytes old = at->second;
    if (old.end <= begin) {
      ++at;
      continue;
    }
    at = returned_.erase(at);
    if (old.begin < begin) returned_.insert({old.begin, {old.begin, begin, old.name}});
    if (old.end > end) at = returned_.insert({end, {end, old.end, old.name}}).first;
  }
}

void LeaseBook::note(const LeaseNote& note) {
  if (note.kind == LeaseNote::Kind::all_over) {
    lent_.clear();
    returned_.clear();
    return;
  }
  for (const Tensor& tensor : note.tensors) {
    const auto [begin, end] = bytes_of(tensor);
    if (begin == end) continue;
    take(begin, end);
    if (note.kind == LeaseNote::Kind::begins) {
      lent_.push_back({begin, end, note.name});
      continue;
    }
    const auto is_it = [begin = begin](const Bytes& b) { return b.begin == begin; };
    const auto mine = std::find_if(lent_.begin(), lent_.end(), is_it);
    if (mine != lent_.end()) lent_.erase(mine);
    const bool other = std::any_of(lent_.begin(), lent_.end(), is_it);
    if (!other) returned_[begin] = {begin, end, note.name};  // two leases may hold the same
  }
}

const char* LeaseBook::given_back(const Tensor& tensor) const {
  const auto [begin, end] = bytes_of(tensor);
  if (begin == end || returned_.empty()) return nullptr;
  const auto after = returned_.lower_bound(end);
  if (after == returned_.begin()) return nullptr;
  const Bytes& last = std::prev(after)->second;
  return last.end > begin ? last.name : nullptr;
}

bool debug_checks() {
#ifdef NDEBUG
  constexpr bool otherwise = false;
#else
  constexpr bool otherwise = true;
#endif
  return is_switched_on("LLMTRAIN_CHECK_IN_FLIGHT", otherwise);
}

void HazardChecker::join(Clock& clock, const Clock& other) {
  clock.resize(std::max(clock.size(), other.size()));
  for (std::size_t i = 0; i < other.size(); ++i) clock[i] = std::max(clock[i], other[i]);
}

int HazardChecker::new_thread(std::string name) {
  names_.push_back(std::move(name));
  clocks_.emplace_back();
  return static_cast<int>(names_.size()) - 1;
}

int HazardChecker::thread_of(Stream stream) {
  const auto [at, fresh] = streams_.try_emplace(stream.id, 0);
  if (fresh) at->second = new_thread(fmt::format("stream {}", stream.id));
  return at->second;
}

int HazardChecker::thread_of(const Group* group) {
  const auto [at, fresh] = groups_.try_emplace(group, 0);
  if (fresh) at->second = new_thread(fmt::format("group '{}'", group->name));
  return at->second;
}

HazardChecker::Access HazardChecker::begin(const char* name, int thread) {
  const auto at = static_cast<std::size_t>(thread);
  Clock& clock = clocks_[at];
  join(clock, host_);
  clock.resize(std::max(clock.size(), at + 1));
  return {name, thread, ++clock[at]};
}

void HazardChecker::on_operation(const OpNote& note) {
  const Access access = begin(note.name, thread_of(note.stream));
  for (const std::span<const Tensor> operands : {note.reads, note.writes}) {
    for (const Tensor& tensor : operands) require_lease(access, tensor);
  }
  for (const Tensor& tensor : note.reads) read(access, tensor);
  for (const Tensor& tensor : note.writes) write(access, tensor);
}

void HazardChecker::on_batch(const BatchNote& batch) {
  const int thread = thread_of(batch.group);
  if (batch.ready.device != nullptr) join(clocks_[static_cast<std::size_t>(thread)], events_[batch.ready.id]);
  for (const CollectiveNote& note : batch.collectives) {
    const Access access = begin(note.name, thread);
    read(access, note.source);
    write(access, note.destination);
  }
  events_[batch.done.id] = clocks_[static_cast<std::size_t>(thread)];
}

void HazardChecker::on_record(Stream stream, Event event) {
  Clock& clock = clocks_[static_cast<std::size_t>(thread_of(stream))];
  join(clock, host_);
  events_[event.id] = clock;
  constexpr std::size_t remembered = 1 << 14;  // events are waited for soon or never
  if (events_.size() > 2 * remembered) {
    // Batches and records may be numbered apart, so the older half is found by what events carry.
    const auto age = [](const Clock& c) {
      std::uint64_t sum = 0;
      for (const std::uint64_t time : c) sum += time;
      return sum;
    };
    std::vector<std::uint64_t> ages;
    for (const auto& [id, c] : events_) ages.push_back(age(c));
    std::nth_element(ages.begin(), ages.begin() + remembered, ages.end());
    std::erase_if(events_, [&](const auto& entry) { return age(entry.second) < ages[remembered]; });
  }
}

void HazardChecker::on_wait(Stream stream, Event event) {
  if (event.device == nullptr) return;
  join(clocks_[static_cast<std::size_t>(thread_of(stream))], events_[event.id]);
}

void HazardChecker::on_synchronize(Stream stream) { join(host_, clocks_[static_cast<std::size_t>(thread_of(stream))]); }

HazardChecker::Ranges::iterator HazardChecker::split(std::uintptr_t at) {
  const auto next = ranges_.lower_bound(at);
  if (next != ranges_.end() && next->first == at) return next;
  if (next == ranges_.begin()) return next;
  const auto before = std::prev(next);
  if (before->second.end <= at) return next;
  Range tail = before->second;
  before->second.end = at;
  return ranges_.emplace_hint(next, at, std::move(tail));
}

std::pair<HazardChecker::Ranges::iterator, HazardChecker::Ranges::iterator> HazardChecker::cover(std::uintptr_t begin,
                                                                                                 std::uintptr_t end) {
  split(end);
  const auto first = split(begin);
  auto at = first;
  std::uintptr_t reached = begin;
  auto result = ranges_.end();
  while (reached < end) {
    if (at == ranges_.end() || at->first > reached) {  // nobody was here yet
      const std::uintptr_t until = at == ranges_.end() ? end : std::min(end, at->first);
      at = ranges_.emplace_hint(at, reached, Range{until, {}, {}});
    }
    if (result == ranges_.end()) result = at;
    reached = at->second.end;
    ++at;
  }
  return {result, at};
}

void HazardChecker::read(const Access& access, const Tensor& tensor) {
  const auto [begin, end] = bytes_of(tensor);
  if (begin == end) return;
  const auto [first, last] = cover(begin, end);
  for (auto at = first; at != last; ++at) {
    require_order(at->second.writer, "written", access, "reads", at->first);
    std::vector<Access>& readers = at->second.readers;
    const auto own =
        std::find_if(readers.begin(), readers.end(), [&](const Access& r) { return r.thread == access.thread; });
    if (own == readers.end()) {
      readers.push_back(access);
    } else {
      *own = access;
    }
  }
}

void HazardChecker::write(const Access& access, const Tensor& tensor) {
  const auto [begin, end] = bytes_of(tensor);
  if (begin == end) return;
  const auto [first, last] = cover(begin, end);
  for (auto at = first; at != last; ++at) {
    require_order(at->second.writer, "written", access, "writes", at->first);
    for (const Access& reader : at->second.readers) require_order(reader, "read", access, "writes", at->first);
  }
  ranges_.erase(std::next(first), last);
  first->second = {end, access, {}};
}

void HazardChecker::require_lease(const Access& access, const Tensor& tensor) const {
  const char* const name = leases_.given_back(tensor);
  if (name == nullptr) return;
  fail(ExitCode::internal,
       "hazard: {} touches {} after the lease of {}; please report this with the deck and the command",
       describe(access), namer_ ? namer_(tensor.data) : fmt::format("memory at {}", tensor.data), name);
}

void HazardChecker::require_order(const Access& earlier, const char* what, const Access& later, const char* how,
                                  std::uintptr_t address) const {
  if (earlier.name == nullptr) return;
  const Clock& clock = clocks_[static_cast<std::size_t>(later.thread)];
  const auto at = static_cast<std::size_t>(earlier.thread);
  if (at < clock.size() && clock[at] >= earlier.time) return;
  fail(ExitCode::internal,
       "hazard: {} {} {} while it may still be {} by {}: no event orders the two; please report this with the deck and "
       "the command",
       describe(later), how,
       namer_ ? namer_(reinterpret_cast<const void*>(address)) : fmt::format("memory at {:#x}", address), what,
       describe(earlier));
}

std::string HazardChecker::describe(const Access& access) const {
  return fmt::format("{} (operation {} of {})", access.name, access.time,
                     names_[static_cast<std::size_t>(access.thread)]);
}

}  // namespace llmtrain
