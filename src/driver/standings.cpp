// SPDX-License-Identifier: Apache-2.0
/// Small files with one field a line; what they say is told to people by rank.
#include "llmtrain/driver/standings.hpp"

#include <fcntl.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <numeric>
#include <sstream>

#include "llmtrain/base/error.hpp"
#include "llmtrain/base/files.hpp"
#include "llmtrain/base/host.hpp"
#include "llmtrain/base/json.hpp"
#include "llmtrain/base/text.hpp"

namespace llmtrain {

namespace {

namespace fs = std::filesystem;

constexpr std::int64_t longest_file = 4096;  // bytes
constexpr std::string_view stuck_mark = "stuck-", awake_mark = "awake-";

std::string to_text(const Standing& standing, std::int64_t look) {
  return fmt::format("look {}\nstill {}\nstep {}\nat {}\nwaits_for {}\n", look, standing.still, standing.step,
                     standing.at, standing.waits_for);
}

/// None of a file that is being written.
std::optional<Standing> parse(const std::string& text) {
  if (!text.ends_with('\n')) return std::nullopt;
  std::map<std::string, std::string> fields = fields_of(text);
  Standing standing;
  std::istringstream(fields["still"]) >> standing.still;
  std::istringstream(fields["step"]) >> standing.step;
  standing.at = fields["at"];
  standing.waits_for = fields["waits_for"];
  return standing;
}

/// In place; not flushed: who reads it is a client of the same file system.
void write_in_place(const std::string& path, const std::string& text) {
  FileDescriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0666));
  require(bool(file), ExitCode::cannot_create, "cannot create {}: {}", path, errno_text(errno));
  int error = write_all(file.get(), text);
  if (error == 0) error = file.close();
  require(error == 0, ExitCode::io_error, "cannot write {}: {}", path, errno_text(error));
}

}  // namespace

std::string StandingsFolder::path_of(int rank, bool stuck) const {
  return fmt::format("{}/{}{:06}", path_, stuck ? stuck_mark : awake_mark, rank);
}

std::vector<StandingsFolder::Entry> StandingsFolder::entries() const {
  std::vector<Entry> entries;
  std::error_code error;
  for (const fs::directory_entry& file : fs::directory_iterator(path_, error)) {
    const std::string name = file.path().filename().string();
    const bool stuck = name.starts_with(stuck_mark);
    if (!stuck && !name.starts_with(awake_mark)) continue;
    Entry entry{-1, stuck, file.path().string()};
    std::from_chars(name.data() + stuck_mark.size(), name.data() + name.size(), entry.rank);
    if (entry.rank >= 0 && entry.rank < ranks_) entries.push_back(std::move(entry));
  }
  std::ranges::sort(entries, {}, &Entry::rank);
  return entries;
}

bool StandingsFolder::answers(const Entry& entry) {
  Heard& heard = heard_[entry.path];
  const std::string text = try_read_small_file(entry.path, longest_file);
  if (text.empty() || text == heard.text) {
    ++heard.looks_without_news;
  } else {
    heard = {text, 0};
  }
  return heard.looks_without_news < looks_to_be_heard;
}

void StandingsFolder::withdraw() {
  std::error_code ignored;
  for (const bool stuck : {false, true}) fs::remove(path_of(rank_, stuck), ignored);
  fs::remove(path_, ignored);  // the last one; else it is not empty
}

void StandingsFolder::remove() const {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

std::optional<Standings> StandingsFolder::look(const Standing& own, double limit) {
  const bool stuck = own.still >= limit;
  std::vector<Entry> all = entries();
  const auto is_own = [&](const Entry& entry) { return entry.rank == rank_; };
  const bool own_is_there = std::ranges::any_of(all, is_own);
  std::erase_if(all, is_own);
  const bool asked = std::ranges::any_of(all, &Entry::stuck);
  if (!stuck) looks_as_judge_ = 0;
  if (!stuck && !asked) {
    if (own_is_there) withdraw();
    wrote_ = false;
    heard_.clear();
    return std::nullopt;
  }
  if (std::exchange(wrote_, false) && !own_is_there) looks_to_wait_ = looks_to_be_ended;
  if (looks_to_wait_ > 0) {
    --looks_to_wait_;
    looks_as_judge_ = 0;
    return std::nullopt;
  }
  make_directories(path_);
  write_in_place(path_of(rank_, stuck), to_text(own, ++looks_));
  wrote_ = true;
  std::error_code ignored;
  fs::remove(path_of(rank_, !stuck), ignored);
  return stuck ? judge(all, own) : std::nullopt;
}

std::optional<Standings> StandingsFolder::judge(const std::vector<Entry>& others, const Standing& own) {
  const auto judges = [&](const Entry& entry) { return entry.stuck && entry.rank < rank_; };
  if (std::ranges::any_of(others, [&](const Entry& entry) { return judges(entry) && answers(entry); })) {
    looks_as_judge_ = 0;
    return std::nullopt;
  }
  Standings standings(static_cast<std::size_t>(ranks_));
  standings[static_cast<std::size_t>(rank_)] = own;
  bool somebody_is_awake = false;
  for (const Entry& entry : others) {  // to the last one: news count from here on
    if (judges(entry) || !answers(entry)) continue;
    somebody_is_awake = somebody_is_awake || !entry.stuck;
    if (entry.stuck) standings[static_cast<std::size_t>(entry.rank)] = parse(heard_[entry.path].text);
  }
  looks_as_judge_ = somebody_is_awake ? 0 : looks_as_judge_ + 1;
  if (looks_as_judge_ < looks_to_judge) return std::nullopt;
  return standings;
}

namespace {

std::string name_of(std::size_t rank, const Member& member) {
  return fmt::format("rank {} ({}, process {})", rank, member.host, member.process);
}

/// Why a rank may not answer, as far as this machine knows.
std::string reason_for_silence(const Member& member) {
  if (member.host != host_name()) return "it is stopped, or its node or the way to its files is gone";
  const std::string letter = process_state(member.process).letter;
  if (letter.empty() || letter == "Z" || letter == "X") return "its process is gone";
  if (letter == "T" || letter == "t") return "its process is stopped";
  if (letter == "D") return "its process waits for a disk or a driver";
  return "its process is there, but does not get to run";
}

/// Less for those that more likely hold up the others: who does not answer, who waits for nobody, who is still for longest.
std::pair<int, double> innocence(const std::optional<Standing>& standing) {
  if (!standing) return {0, 0};
  return {standing->waits_for.empty() ? 1 : 2, -standing->still};
}

std::string sentence(const Standing& standing) {
  std::string text = fmt::format("still for {:.3g} s, {}", standing.still,
                                 standing.step > 0 ? fmt::format("step {}", standing.step) : "before step 1");
  if (!standing.at.empty()) text += ", at " + standing.at;
  if (!standing.waits_for.empty()) text += ", waits for " + standing.waits_for;
  return text;
}

constexpr const char* remedy =
    "start again: the run goes on from its newest checkpoint. A node that is named here again and again is left out "
    "(Slurm: --exclude); where a piece of work may take so long, raise run.hang_timeout";

}  // namespace

std::string hang_report(std::span<const Member> members, const Standings& standings, double limit,
                        const std::string& file) {
  std::vector<std::size_t> order(standings.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, {}, [&](std::size_t rank) { return innocence(standings[rank]); });
  std::string text = fmt::format("no rank has got on for {} s (run.hang_timeout); the likely cause first:", limit);
  constexpr std::size_t most = 8;
  for (const std::size_t rank : std::span(order).first(std::min(most, order.size()))) {
    text += fmt::format(
        "\n  {} {}", name_of(rank, members[rank]),
        standings[rank] ? "is " + sentence(*standings[rank]) : "does not answer: " + reason_for_silence(members[rank]));
  }
  if (order.size() > most) text += fmt::format("\n  and {} more", order.size() - most);
  return fmt::format("{}\nall ranks are in {}; {}", text, file, remedy);
}

std::string lone_report(int rank, const Member& self, const Standing& own, double limit, const std::string& folder) {
  return fmt::format(
      "{} is {}, longer than {} s (run.hang_timeout), and the run's folder {} does not answer, so nothing is known of "
      "the other ranks; {}",
      name_of(static_cast<std::size_t>(rank), self), sentence(own), limit, folder, remedy);
}

std::string hang_json(std::span<const Member> members, const Standings& standings, double limit) {
  JsonArray ranks;
  for (std::size_t rank = 0; rank < standings.size(); ++rank) {
    JsonObject row;
    row.add("rank", rank).add("host", members[rank].host).add("process", members[rank].process);
    row.add("answers", standings[rank].has_value());
    if (const auto& standing = standings[rank]) {
      row.add("still_seconds", standing->still).add("step", standing->step);
      row.add("at", standing->at).add("waits_for", standing->waits_for);
    }
    ranks.add(row);
  }
  return JsonObject().add("schema", 1).add("hang_timeout", limit).add("ranks", ranks).text() + "\n";
}

}  // namespace llmtrain
