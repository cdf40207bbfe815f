// SPDX-License-Identifier: Apache-2.0
/// The life of a batch: submitted, started, run in rounds, completed.
#include "communicator.hpp"

#include <algorithm>
#include <cstring>
#include <exception>
#include <utility>

#include "exchange.hpp"
#include "llmtrain/base/backoff.hpp"
#include "rank_order.hpp"

namespace llmtrain {

namespace {

constexpr std::int64_t staging_alignment = 64;

std::byte* address(const Tensor& tensor, std::int64_t element) {
  return static_cast<std::byte*>(tensor.data) + element * size_of(tensor.dtype);
}

bool reduces(Communicator::OpKind kind) {
  return kind == Communicator::OpKind::all_reduce || kind == Communicator::OpKind::reduce_scatter;
}

}  // namespace

CpuCommunicator::CpuCommunicator(CpuDevice& device, const Group& group, Tensor workspace,
                                 CpuCommunicatorOptions options)
    : Communicator(device, group),
      cpu_(device),
      check_in_flight_(options.check_in_flight),
      staging_(static_cast<std::byte*>(workspace.data), static_cast<std::size_t>(workspace.bytes())),
      exchange_(std::make_unique<Exchange>(group_, options.max_message)),
      slot_(-1) {
  if (size() > 1) {  // rounds must be the same on all ranks
    const auto bytes = static_cast<std::int64_t>(staging_.size());
    LLMTRAIN_CHECK(group_.comm.all_reduce(bytes, MpiOp::min) == group_.comm.all_reduce(bytes, MpiOp::max));
    LLMTRAIN_CHECK(bytes >= staging_alignment * (size() - 1));
  }
  slot_ = cpu_.attach(this);
}

CpuCommunicator::~CpuCommunicator() {
  try {
    Backoff backoff;
    while (!broken_ && std::uncaught_exceptions() == 0 && !flights_.empty()) {
      if (!cpu_.progress()) backoff.pause();
    }
  } catch (const std::exception& error) {
    fmt::print(stderr, "error: while closing group '{}': {}\n", group_.name, error.what());
  }
  cpu_.detach(slot_);
}

Event CpuCommunicator::do_submit(std::span<const Op> ops, Event ready) {
  for (const Op& op : ops) check_op(op);
  flights_.push_back({.sequence = ++submitted_, .ops = {ops.begin(), ops.end()}, .ready = ready});
  advance();
  return cpu_.event_of(slot_, submitted_);
}

void CpuCommunicator::check_op(const Op& op) const {
  if (reduces(op.kind)) {
    require(can_reduce(op.destination.dtype, op.reduce), ExitCode::internal,
            "group '{}': the CPU back end cannot reduce {}", group_.name, op.destination.describe());
  }
  if (op.kind == OpKind::send || op.kind == OpKind::receive) LLMTRAIN_CHECK(op.peer != rank());
  if (op.kind == OpKind::shift || op.kind == OpKind::copy) {
    LLMTRAIN_CHECK(!memory_overlaps(op.destination, op.source));
  }
  if (op.kind != OpKind::reduce_scatter && op.kind != OpKind::all_gather) return;
  // The small side is either this rank's part of the large one or apart from it.
  const bool scatter = op.kind == OpKind::reduce_scatter;
  const Tensor& part = scatter ? op.destination : op.source;
  const Tensor& whole = scatter ? op.source : op.destination;
  LLMTRAIN_CHECK(part.data == address(whole, rank() * part.numel()) || !memory_overlaps(part, whole));
}

bool CpuCommunicator::advance() {
  if (flights_.empty()) return false;
  broken_ = true;  // unless this call comes to its end
  const bool moved = advance_flights();
  broken_ = false;
  return moved;
}

void CpuCommunicator::check_peers() {
  broken_ = true;
  exchange_->check_peers();
  broken_ = false;
}

bool CpuCommunicator::advance_flights() {
  bool moved = false;
  while (!flights_.empty()) {
    Flight& flight = flights_.front();
    if (!flight.started) {
      if (!cpu_.has_happened(flight.ready)) return moved;
      start(flight);
    } else if (!exchange_->idle()) {
      moved |= exchange_->test();
      if (!exchange_->idle()) return moved;
    }
    while (exchange_->idle() && finish_round(flight)) post_round(flight);
    if (!exchange_->idle()) return true;
    completed_ = flight.sequence;
    if (flight.check != nullptr) landed_.push_back(std::move(flight.check));
    flights_.pop_front();
    moved = true;
  }
  return moved;
}

void CpuCommunicator::deliver(std::uint64_t sequence) {
  while (!landed_.empty() && landed_.front()->sequence() <= sequence) {
    const std::unique_ptr<InFlightCheck> check = std::move(landed_.front());
    landed_.pop_front();
    check->deliver();
  }
}

void CpuCommunicator::start(Flight& flight) {
  flight.started = true;
  cpu_.deliver(flight.ready);
  if (check_in_flight_) {
    for (std::size_t i = landed_.size(); i-- > 0;) {  // issue order makes earlier results visible to later batches
      if (landed_[i]->touches(flight.ops)) {
        deliver(landed_[i]->sequence());
        break;
      }
    }
    flight.check = std::make_unique<InFlightCheck>(group_, flight.sequence, flight.ops);
  }
  for (const Op& op : flight.ops) {
    const bool copies =
        op.kind == OpKind::all_gather || op.kind == OpKind::copy || (op.kind == OpKind::reduce_scatter && size() == 1);
    if (copies && op.source.bytes() > 0) {
      std::byte* to = op.kind == OpKind::all_gather ? address(op.destination, rank() * op.source.numel())
                                                    : address(op.destination, 0);
      if (to != op.source.data) std::memcpy(to, op.source.data, static_cast<std::size_t>(op.source.bytes()));
    }
    if (size() > 1) post_direct(op);
  }
  post_round(flight);
}

void CpuCommunicator::post_direct(const Op& op) {
  if (op.kind == OpKind::send) exchange_->send(op.source.data, op.source.bytes(), op.peer, op.kind);
  if (op.kind == OpKind::receive) exchange_->receive(op.destination.data, op.destination.bytes(), op.peer, op.kind);
  if (op.kind == OpKind::broadcast && rank() != op.peer) {
    exchange_->receive(op.destination.data, op.destination.bytes(), op.peer, op.kind);
  }
  for (int step = 1; step < size(); ++step) {  // each step pairs every rank with another one
    const int to = group_.at_distance(step), from = group_.at_distance(-step);
    if (op.kind == OpKind::shift && step == op.peer) {
      exchange_->receive(op.destination.data, op.destination.bytes(), from, op.kind);
      exchange_->send(op.source.data, op.source.bytes(), to, op.kind);
    }
    if (op.kind == OpKind::broadcast && rank() == op.peer) {
      exchange_->send(op.source.data, op.source.bytes(), to, op.kind);
    }
    if (op.kind == OpKind::all_gather) {
      exchange_->receive(address(op.destination, from * op.source.numel()), op.source.bytes(), from, op.kind);
      exchange_->send(op.source.data, op.source.bytes(), to, op.kind);
    }
  }
}

void CpuCommunicator::post_round(Flight& flight) {
  for (const Piece& piece : flight.gathering) exchange_results(piece);
  flight.reducing = cut_pieces(flight);
  for (const Piece& piece : flight.reducing) exchange_contributions(piece);
}

bool CpuCommunicator::finish_round(Flight& flight) {
  flight.gathering.clear();
  for (const Piece& piece : flight.reducing) {
    combine(piece);
    if (piece.op->kind == OpKind::all_reduce) flight.gathering.push_back(piece);
  }
  flight.reducing.clear();
  return !flight.gathering.empty() || flight.next_op < flight.ops.size();
}

std::vector<CpuCommunicator::Piece> CpuCommunicator::cut_pieces(Flight& flight) {
  std::vector<Piece> pieces;
  constexpr std::int64_t short_piece = 4096;  // bytes; rather than cut one so short, a round ends
  const std::int64_t others = size() - 1;
  const auto room = static_cast<std::int64_t>(staging_.size());
  std::int64_t used = 0;
  while (flight.next_op < flight.ops.size()) {
    const Op& op = flight.ops[flight.next_op];
    const bool scatter = op.kind == OpKind::reduce_scatter;
    const std::int64_t elements = op.destination.numel();
    const std::int64_t rest = elements - flight.next_element;
    if (!reduces(op.kind) || others == 0 || rest == 0) {
      ++flight.next_op;
      flight.next_element = 0;
      continue;
    }
    const std::int64_t width = size_of(op.destination.dtype);
    const std::int64_t wanted = scatter ? rest : (rest + others) / size();  // of each owner
    std::int64_t count = std::min(wanted, (room - used) / (others * width));
    if (count < wanted && used > 0 && count * width < short_piece) break;
    if (scatter) {
      pieces.push_back({&op, flight.next_element, elements, count, op.source.numel(), staging_.data() + used});
      flight.next_element += count;
    } else {
      const std::int64_t end = flight.next_element + std::min(rest, count * size());
      pieces.push_back({&op, flight.next_element, count, count, end, staging_.data() + used});
      flight.next_element = end;
    }
    used =
        std::min(room, (used + others * count * width + staging_alignment - 1) / staging_alignment * staging_alignment);
  }
  return pieces;
}

CpuCommunicator::Range CpuCommunicator::range_of(const Piece& piece, int rank) const {
  const std::int64_t begin = std::min(piece.begin + rank * piece.stride, piece.limit);
  return {begin, std::min(piece.count, piece.limit - begin)};
}

void CpuCommunicator::exchange_contributions(const Piece& piece) {
  const Tensor& source = piece.op->source;
  const std::int64_t width = size_of(source.dtype);
  const std::int64_t own_bytes = range_of(piece, rank()).count * width;
  for (int step = 1; step < size(); ++step) {
    const int to = group_.at_distance(step), from = group_.at_distance(-step);
    const Range range = range_of(piece, to);
    exchange_->receive(piece.staging + (from < rank() ? from : from - 1) * own_bytes, own_bytes, from, piece.op->kind);
    exchange_->send(address(source, range.begin), range.count * width, to, piece.op->kind);
  }
}

void CpuCommunicator::exchange_results(const Piece& piece) {
  const Tensor& tensor = piece.op->destination;
  const std::int64_t width = size_of(tensor.dtype);
  const Range own = range_of(piece, rank());
  for (int step = 1; step < size(); ++step) {
    const int to = group_.at_distance(step), from = group_.at_distance(-step);
    const Range range = range_of(piece, from);
    exchange_->receive(address(tensor, range.begin), range.count * width, from, piece.op->kind);
    exchange_->send(address(tensor, own.begin), own.count * width, to, piece.op->kind);
  }
}

void CpuCommunicator::combine(const Piece& piece) {
  const Op& op = *piece.op;
  const Range own = range_of(piece, rank());
  if (own.count == 0) return;
  std::vector<const void*> contributions;
  contributions.reserve(static_cast<std::size_t>(size()));
  for (int p = 0; p < size(); ++p) {
    const std::int64_t place = (p < rank() ? p : p - 1) * own.count * size_of(op.source.dtype);
    contributions.push_back(p == rank() ? address(op.source, own.begin) : piece.staging + place);
  }
  const std::int64_t target = op.kind == OpKind::reduce_scatter ? piece.begin : own.begin;
  reduce_in_rank_order(address(op.destination, target), contributions, own.count, op.destination.dtype, op.reduce);
}

}  // namespace llmtrain
