// SPDX-License-Identifier: Apache-2.0
/// A network of sequential stages and first-in-first-out channels: whatever order they are looked at in, times come out
/// the same.
#include "llmtrain/schedule/simulate.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "llmtrain/base/error.hpp"

namespace llmtrain {

namespace {

using Kind = Action::Kind;
using Time = std::optional<std::int64_t>;  // none: not yet

/// One end's operations on a channel, in issue order.
struct Operation {
  const Action* action;
  std::int64_t issued;
};

struct Channel {
  std::vector<Operation> sends, receives;
  std::vector<std::int64_t> done;  // of the k-th pair

  void match(std::int64_t ticks) {
    while (done.size() < std::min(sends.size(), receives.size())) {
      const std::size_t k = done.size();
      done.push_back(std::max({sends[k].issued, receives[k].issued, k > 0 ? done[k - 1] : 0}) + ticks);
    }
  }
};

/// A tensor of one use on a stage, and the transfer that last touched it.
struct Transfer {
  Channel* channel = nullptr;
  std::size_t index = 0;
  Time done() const {
    if (channel == nullptr) return 0;
    return index < channel->done.size() ? Time(channel->done[index]) : Time{};
  }
};

class Stages {
 public:
  Stages(std::span<const std::vector<Action>> actions, const Durations& durations)
      : actions_(actions), durations_(durations), stages_(static_cast<int>(actions.size())), at_(actions.size()) {
    result_.work.resize(actions.size());
    result_.in_flight.assign(actions.size(), 0);
  }

  Simulation run() {
    bool moved = true;
    while (moved) {
      moved = false;
      for (int stage = 0; stage < stages_; ++stage) {
        while (advance(stage)) moved = true;
      }
    }
    for (int stage = 0; stage < stages_; ++stage) {
      const Position& at = position(stage);
      result_.ticks = std::max(result_.ticks, at.clock);
      if (at.next == list(stage).size()) continue;
      const Action& action = list(stage)[at.next];
      result_.stuck += fmt::format("stage {} waits at action {} of {}, {} of micro-batch {} in chunk {}: {}\n", stage,
                                   at.next, list(stage).size(), name_of(action.kind), action.micro_batch, action.chunk,
                                   missing(stage, action));
    }
    return std::move(result_);
  }

 private:
  struct Position {
    std::size_t next = 0;
    std::int64_t clock = 0;
    std::int64_t alive = 0;
    std::map<std::pair<char, int>, Transfer> tensors;  // by use and number
  };

  static const char* name_of(Kind kind) {
    switch (kind) {
      case Kind::forward: return "forward";
      case Kind::backward: return "backward";
      case Kind::receive_input: return "receive_input";
      case Kind::send_output: return "send_output";
      case Kind::receive_gradient: return "receive_gradient";
      case Kind::send_gradient: return "send_gradient";
    }
    return "?";
  }

  const std::vector<Action>& list(int stage) const { return actions_[static_cast<std::size_t>(stage)]; }
  Position& position(int stage) { return at_[static_cast<std::size_t>(stage)]; }
  int piece(int stage, const Action& action) const { return action.chunk * stages_ + stage; }

  /// Tensors that must have come or gone before the action goes on.
  std::vector<Transfer> needs(int stage, const Action& action) {
    std::vector<Transfer> transfers;
    const auto add = [&](char use, int number) {
      if (number >= 0) transfers.push_back(position(stage).tensors[{use, number}]);
    };
    if (action.kind == Kind::send_output || action.kind == Kind::send_gradient) return transfers;
    add('i', action.input);
    add('o', action.output);
    add('g', action.gradient);
    return transfers;
  }

  std::string missing(int stage, const Action& action) {
    for (const Transfer& transfer : needs(stage, action)) {
      if (transfer.done()) continue;
      const bool sent = transfer.index < transfer.channel->sends.size();
      const Operation& op = sent ? transfer.channel->sends[transfer.index] : transfer.channel->receives[transfer.index];
      return fmt::format("{} of micro-batch {} has not met its {}", name_of(op.action->kind), op.action->micro_batch,
                         sent ? "receive" : "send");
    }
    return "nothing";
  }

  bool advance(int stage) {
    Position& at = position(stage);
    if (at.next == list(stage).size()) return false;
    const Action& action = list(stage)[at.next];
    std::int64_t clock = at.clock;
    for (const Transfer& transfer : needs(stage, action)) {
      const Time done = transfer.done();
      if (!done) return false;
      clock = std::max(clock, *done);
    }
    at.clock = clock;
    ++at.next;
    if (action.computes()) {
      compute(stage, action);
    } else {
      transfer(stage, action);
    }
    return true;
  }

  void compute(int stage, const Action& action) {
    Position& at = position(stage);
    const bool forward = action.kind == Kind::forward;
    const std::int64_t ticks = durations_.work(stage, action);
    at.clock += ticks;
    at.alive += forward ? 1 : -1;
    auto& peak = result_.in_flight[static_cast<std::size_t>(stage)];
    peak = std::max(peak, at.alive);
    result_.work[static_cast<std::size_t>(stage)].push_back({action, at.clock - ticks, at.clock});
  }

  void transfer(int stage, const Action& action) {
    const bool activations = action.kind == Kind::send_output || action.kind == Kind::receive_input;
    const bool sends = action.kind == Kind::send_output || action.kind == Kind::send_gradient;
    const int sender = sends ? stage : (stage + (activations ? stages_ - 1 : 1)) % stages_;
    Channel& channel = channels_[{activations, sender}];
    auto& operations = sends ? channel.sends : channel.receives;
    operations.push_back({&action, position(stage).clock});
    const std::size_t index = operations.size() - 1;
    if (index < std::min(channel.sends.size(), channel.receives.size())) {
      const Action &sent = *channel.sends[index].action, &received = *channel.receives[index].action;
      const int receiver = (sender + (activations ? 1 : stages_ - 1)) % stages_;
      const int step = piece(receiver, received) - piece(sender, sent);
      require(sent.micro_batch == received.micro_batch && step == (activations ? 1 : -1), ExitCode::internal,
              "internal error: transfer {} of stage {}: {} of micro-batch {}, chunk {} meets {} of micro-batch {}, "
              "chunk {}",
              index, sender, name_of(sent.kind), sent.micro_batch, sent.chunk, name_of(received.kind),
              received.micro_batch, received.chunk);
    }
    channel.match(durations_.transfer(sender));
    const std::pair<char, int> tensor = action.input >= 0    ? std::pair('i', action.input)
                                        : action.output >= 0 ? std::pair('o', action.output)
                                                             : std::pair('g', action.gradient);
    position(stage).tensors[tensor] = {&channel, index};
  }

  std::span<const std::vector<Action>> actions_;
  const Durations& durations_;
  int stages_;
  std::vector<Position> at_;
  std::map<std::pair<bool, int>, Channel> channels_;  // by what they carry and who sends
  Simulation result_;
};

}  // namespace

double Simulation::idle() const {
  std::int64_t busy = 0;
  for (const auto& stage : work) {
    for (const Work& w : stage) busy += w.end - w.begin;
  }
  return ticks == 0 ? 0 : 1 - static_cast<double>(busy) / static_cast<double>(ticks * std::ssize(work));
}

Durations unit_durations() {
  return {[](int, const Action& work) -> std::int64_t { return work.kind == Kind::forward ? 1 : 2; },
          [](int) -> std::int64_t { return 0; }};
}

Simulation simulate(std::span<const std::vector<Action>> stages, const Durations& durations) {
  return Stages(stages, durations).run();
}

std::vector<std::vector<Action>> make_schedules(ScheduleKind kind, int stages, std::int64_t micro_batches, int chunks) {
  std::vector<std::vector<Action>> all;
  for (int stage = 0; stage < stages; ++stage)
    all.push_back(make_schedule(kind, {stages, stage, micro_batches, chunks}));
  return all;
}

std::string draw(const Simulation& simulation) {
  const bool chunked = std::any_of(simulation.work.begin(), simulation.work.end(), [](const auto& stage) {
    return std::any_of(stage.begin(), stage.end(), [](const auto& w) { return w.action.chunk > 0; });
  });
  std::vector<std::vector<std::string>> cells;
  std::size_t width = 1;
  for (const auto& stage : simulation.work) {
    auto& row = cells.emplace_back(static_cast<std::size_t>(simulation.ticks), ".");
    for (const Simulation::Work& w : stage) {
      std::string name = fmt::format("{}{}", w.action.kind == Kind::forward ? 'F' : 'B', w.action.micro_batch);
      if (chunked) name += fmt::format(".{}", w.action.chunk);
      width = std::max(width, name.size());
      for (std::int64_t tick = w.begin; tick < w.end; ++tick) {
        row[static_cast<std::size_t>(tick)] = tick == w.begin ? name : std::string(name.size(), '-');
      }
    }
  }
  std::string text;
  for (std::size_t stage = 0; stage < cells.size(); ++stage) {
    std::string line = fmt::format("stage {:<2}", stage);
    for (const std::string& cell : cells[stage]) line += fmt::format(" {:<{}}", cell, width);
    text += line.substr(0, line.find_last_not_of(' ') + 1) + '\n';
  }
  return text;
}

}  // namespace llmtrain
