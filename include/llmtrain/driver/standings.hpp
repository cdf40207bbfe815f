// SPDX-License-Identifier: Apache-2.0
/// Where the ranks of a job stand that may hang: how they tell each other without MPI, which is what they hang in, and the
/// report for people.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace llmtrain {

/// Where a rank stands, by its own account.
struct Standing {
  double still = 0;  ///< seconds since it last got on
  std::int64_t step = 0;
  std::string at;         ///< "step/forward"
  std::string waits_for;  ///< empty: nothing that has a name
};

/// By rank; none of those who do not answer.
using Standings = std::vector<std::optional<Standing>>;

/// What the others know of a rank that does not answer.
struct Member {
  std::string host;
  std::int64_t process = 0;
};

/// A folder on a file system that all ranks see, which is there only while one of them is stuck. Who is stuck writes where
/// it stands, and everybody else, asked by that, that it is awake; both write again with every look. The stuck rank with
/// the lowest number judges: when nobody is awake, the job hangs. Who is not heard of any more does not answer. Whoever
/// judges removes the folder; the others then wait for their launcher to end them before they ask again.
///
/// Files are written in place and never renamed, and looks wait for each other's, because network file systems show a new
/// name or a new content of a folder to other nodes a minute later.
class StandingsFolder {
 public:
  StandingsFolder(std::string path, int rank, int ranks) : path_(std::move(path)), rank_(rank), ranks_(ranks) {}

  /// One look. `own` is this rank's standing, and it is stuck if it is still for `limit` seconds. The standings of all once
  /// this rank has found that the job hangs. Throws Error where the folder cannot be made or written.
  std::optional<Standings> look(const Standing& own, double limit);
  /// Removes this rank's file, and the folder with the last one.
  void withdraw();
  /// Removes all files and the folder.
  void remove() const;

  /// In a row of a rank that is stuck and the first of those, and sees nobody awake, before it judges: time for others to
  /// answer, and for itself to be woken by one that has ended.
  static constexpr int looks_to_judge = 8;
  static constexpr int looks_to_be_heard = 4;   ///< without anything new, a rank counts as one that does not answer
  static constexpr int looks_to_be_ended = 32;  ///< after a judgement, before a rank asks again

 private:
  struct Entry {
    int rank = 0;
    bool stuck = false;
    std::string path;
  };
  struct Heard {
    std::string text;
    int looks_without_news = 0;
  };
  std::vector<Entry> entries() const;
  std::string path_of(int rank, bool stuck) const;
  bool answers(const Entry& entry);
  std::optional<Standings> judge(const std::vector<Entry>& others, const Standing& own);

  std::string path_;
  int rank_;
  int ranks_;
  std::int64_t looks_ = 0;
  bool wrote_ = false;     ///< in the look before
  int looks_to_wait_ = 0;  ///< since somebody judged
  int looks_as_judge_ = 0;
  std::map<std::string, Heard> heard_;  ///< by file
};

/// "rank 1 (node7, process 4711) does not answer: it is stopped" and so on, those that most likely hold up the others
/// first: who does not answer, who waits for nobody, who has been still for longest. `file` has the rest.
std::string hang_report(std::span<const Member> members, const Standings& standings, double limit,
                        const std::string& file);

/// One line for a rank that cannot ask the others.
std::string lone_report(int rank, const Member& self, const Standing& own, double limit, const std::string& folder);

/// JSON: all ranks in their order.
std::string hang_json(std::span<const Member> members, const Standings& standings, double limit);

}  // namespace llmtrain
