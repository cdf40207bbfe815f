// SPDX-License-Identifier: Apache-2.0
/// Ranks that may hang, as one folder for each in this process: when they are judged, by whom, and what is said.
#include "llmtrain/driver/standings.hpp"

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>

#include "llmtrain/base/error.hpp"
#include "llmtrain/base/host.hpp"
#include "support/scratch_folder.hpp"

using namespace llmtrain;

namespace {

constexpr double limit = 100;
const Standing awake{1, 7, "step", ""};
const Standing stuck{150, 7, "step/backward", "group 'tp'"};

/// Ranks that look in turn, those of `silent` apart.
struct Job {
  explicit Job(int ranks) {
    for (int rank = 0; rank < ranks; ++rank) folders.emplace_back(path, rank, ranks);
  }

  /// So many rounds; the standings of the first judgement, and who judged in which round.
  std::optional<Standings> rounds(int count, const std::vector<Standing>& standings,
                                  const std::vector<int>& silent = {}) {
    for (round = 1; round <= count; ++round) {
      for (judge = 0; judge < static_cast<int>(folders.size()); ++judge) {
        if (std::ranges::find(silent, judge) != silent.end()) continue;
        auto judged = folders[static_cast<std::size_t>(judge)].look(standings[static_cast<std::size_t>(judge)], limit);
        if (judged) return judged;
      }
    }
    return std::nullopt;
  }
  bool is_there() const { return std::filesystem::exists(path); }

  ScratchFolder scratch;
  std::string path = scratch / "hang";
  std::vector<StandingsFolder> folders;
  int round = 0;
  int judge = 0;
};

constexpr int judged_at = StandingsFolder::looks_to_judge;

}  // namespace

TEST_CASE("ranks that get on leave the folder alone") {
  Job job(3);
  CHECK_FALSE(job.rounds(50, {awake, awake, awake}));
  CHECK_FALSE(job.is_there());
}

TEST_CASE("a rank that waits for one that gets on is not judged, and the folder goes when it gets on too") {
  Job job(3);
  CHECK_FALSE(job.rounds(50, {stuck, awake, stuck}));
  CHECK(job.is_there());
  CHECK_FALSE(job.rounds(2, {awake, awake, awake}));
  CHECK_FALSE(job.is_there());
}

TEST_CASE("when all are stuck the first one judges, and knows where all stand") {
  Job job(3);
  const Standing last{170.5, 8, "step/update", ""};
  const auto standings = job.rounds(50, {stuck, stuck, last});
  REQUIRE(standings);
  CHECK(job.judge == 0);
  CHECK(job.round == judged_at);
  REQUIRE((*standings)[1]);
  CHECK((*standings)[1]->at == "step/backward");
  CHECK((*standings)[1]->waits_for == "group 'tp'");
  REQUIRE((*standings)[2]);
  CHECK((*standings)[2]->still == 170.5);
  CHECK((*standings)[2]->step == 8);
  CHECK((*standings)[2]->waits_for.empty());

  job.folders[0].remove();
  CHECK_FALSE(job.rounds(StandingsFolder::looks_to_be_ended, {stuck, stuck, last}, {0}));
  CHECK_FALSE(job.is_there());  // the others wait to be ended
  CHECK(job.rounds(50, {stuck, stuck, last}, {0}));
  CHECK(job.judge == 1);
}

TEST_CASE("time to judge begins anew for a rank that got on") {
  Job job(1);
  CHECK_FALSE(job.rounds(judged_at - 1, {stuck}));
  CHECK_FALSE(job.rounds(1, {awake}));
  CHECK_FALSE(job.rounds(judged_at - 1, {stuck}));
  CHECK(job.rounds(1, {stuck}));
}

TEST_CASE("a rank that was awake and is not heard of any more does not hold up the judgement") {
  Job job(3);
  CHECK_FALSE(job.rounds(20, {stuck, awake, stuck}));
  const auto standings = job.rounds(50, {stuck, awake, stuck}, {1});
  REQUIRE(standings);
  CHECK(job.round == StandingsFolder::looks_to_be_heard + judged_at);
  CHECK_FALSE((*standings)[1]);
  CHECK((*standings)[2]);
}

TEST_CASE("a rank that ends leaves those it kept waiting the time to see it") {
  Job job(2);
  CHECK_FALSE(job.rounds(20, {stuck, awake}));
  job.folders[1].withdraw();
  CHECK_FALSE(job.rounds(judged_at - 1, {stuck, awake}, {1}));
  CHECK(job.rounds(1, {stuck, awake}, {1}));
}

TEST_CASE("a rank that never looked does not answer") {
  Job job(2);
  const auto standings = job.rounds(50, {stuck, stuck}, {0});
  REQUIRE(standings);
  CHECK(job.judge == 1);
  CHECK_FALSE((*standings)[0]);
}

TEST_CASE("the next one judges where the first is stopped") {
  Job job(3);
  CHECK_FALSE(job.rounds(3, {stuck, stuck, stuck}));
  const auto standings = job.rounds(50, {stuck, stuck, stuck}, {0});
  REQUIRE(standings);
  CHECK(job.judge == 1);
  CHECK_FALSE((*standings)[0]);
  CHECK((*standings)[2]);
}

TEST_CASE("files of others in the folder are left alone, and a folder that cannot be made is an error") {
  Job job(2);
  std::filesystem::create_directories(job.path + "/stuck-000009");
  CHECK_FALSE(job.rounds(2, {stuck, awake}));
  CHECK_FALSE(job.rounds(2, {awake, awake}));
  CHECK(std::filesystem::exists(job.path + "/stuck-000009"));
  StandingsFolder nowhere("/proc/hang", 0, 1);
  CHECK_FALSE(nowhere.look(awake, limit));
  CHECK_THROWS_AS(nowhere.look(stuck, limit), Error);
}

TEST_CASE(
    "the report names first who does not answer, and why as far as this machine knows, then who waits for nobody") {
  const pid_t child = ::fork();
  if (child == 0) {
    ::raise(SIGSTOP);
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, WUNTRACED);
  const std::vector<Member> members{
      {host_name(), ::getpid()}, {host_name(), child}, {"another-node", 4711}, {host_name(), ::getpid()}};
  const Standings standings{Standing{600, 12, "step/forward", "group 'dp'"}, std::nullopt, std::nullopt,
                            Standing{500, 0, "launch/data", ""}};
  const std::string report = hang_report(members, standings, 600, "runs/x/hang.json");
  CAPTURE(report);
  CHECK(report.starts_with("no rank has got on for 600 s (run.hang_timeout)"));
  const auto at = [&](const std::string& text) { return report.find(text); };
  CHECK(at(fmt::format("rank 1 ({}, process {}) does not answer: its process is stopped", host_name(), child)) <
        at("rank 2 (another-node, process 4711) does not answer: it is stopped, or its node"));
  CHECK(at("rank 2") < at("is still for 500 s, before step 1, at launch/data\n"));
  CHECK(at("before step 1") < at("is still for 600 s, step 12, at step/forward, waits for group 'dp'\n"));
  CHECK(at("all ranks are in runs/x/hang.json; start again") != std::string::npos);
  ::kill(child, SIGKILL);
  ::waitpid(child, &status, 0);
  CHECK(hang_report(members, standings, 600, "").find("its process is gone") != std::string::npos);

  const std::string json = hang_json(members, standings, 600);
  CAPTURE(json);
  CHECK(json.find(R"("hang_timeout": 600)") != std::string::npos);
  CHECK(json.find(R"({"rank": 2, "host": "another-node", "process": 4711, "answers": false})") != std::string::npos);
  CHECK(json.find(R"("still_seconds": 600, "step": 12, "at": "step/forward", "waits_for": "group 'dp'")") !=
        std::string::npos);
}

TEST_CASE("of many ranks the report names the first few") {
  const std::vector<Member> members(100, Member{"node", 1});
  const std::string report = hang_report(members, Standings(100, stuck), 10, "hang.json");
  CHECK(std::ranges::count(report, '\n') == 10);
  CHECK(report.find("and 92 more") != std::string::npos);
}

TEST_CASE("a rank that cannot ask says so") {
  const std::string report = lone_report(3, {"node", 17}, stuck, 100, "runs/x");
  CHECK(report.starts_with(
      "rank 3 (node, process 17) is still for 150 s, step 7, at step/backward, waits for group 'tp'"));
  CHECK(report.find("folder runs/x does not answer") != std::string::npos);
}
