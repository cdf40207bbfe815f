// SPDX-License-Identifier: Apache-2.0
// ranks: 1 2 4
/// Checkpoints over ranks: any layout loads any other, equal states give equal files, and a failure on one rank is a
/// failure on all that leaves the last checkpoint alone.
#include <doctest/doctest.h>

#include <sys/resource.h>

#include <csignal>

#include "checkpoint_fixture.hpp"
#include "llmtrain/base/agree.hpp"
#include "llmtrain/base/error.hpp"
#include "llmtrain/base/mpi.hpp"
#include "llmtrain/checkpoint/folders.hpp"
#include "llmtrain/checkpoint/loader.hpp"
#include "llmtrain/checkpoint/saver.hpp"

using namespace llmtrain;
using namespace checkpoint_test;
namespace fs = std::filesystem;

namespace {

/// A folder that rank 0 makes and removes.
class SharedScratch {
 public:
  explicit SharedScratch(const MpiComm& comm) : comm_(comm) {
    if (comm.rank() == 0) own_ = std::make_unique<Scratch>();
    path_ = comm.broadcast(own_ ? own_->path().string() : std::string(), 0);
  }
  ~SharedScratch() { comm_.barrier(); }
  const fs::path& path() const { return path_; }

 private:
  MpiComm comm_;
  std::unique_ptr<Scratch> own_;
  fs::path path_;
};

template <class Action>
int code_of(Action action) {
  try {
    action();
  } catch (const Error& error) {
    return static_cast<int>(error.code());
  }
  return 0;
}

struct Layout {
  int ranks;
  int tensor;
};

/// The layouts that fit in this job.
std::vector<Layout> layouts(int world) {
  std::vector<Layout> fitting;
  for (const Layout layout : {Layout{1, 1}, Layout{2, 1}, Layout{2, 2}, Layout{4, 1}, Layout{4, 2}, Layout{4, 4}}) {
    if (layout.ranks <= world) fitting.push_back(layout);
  }
  return fitting;
}

}  // namespace

TEST_CASE("every layout loads what every other has saved, bit for bit") {
  const MpiComm world = MpiComm::world();
  const SharedScratch scratch(world);
  for (const Layout from : layouts(world.size())) {
    const fs::path folder = scratch.path() / ("from-" + std::to_string(from.ranks) + "-" + std::to_string(from.tensor));
    const MpiComm savers = world.split(world.rank() < from.ranks ? 0 : -1, 0);
    if (savers) {
      const Shard shard = shard_of(savers.rank(), from.ranks, from.tensor, true);
      save_checkpoint(savers, folder, state_at(100), shard.pieces, {});
    }
    world.barrier();
    for (const Layout to : layouts(world.size())) {
      // Numbered from the other end: a rank's number in the world, or on its machine, chooses no file.
      const MpiComm loaders = world.split(world.rank() < to.ranks ? 0 : -1, -world.rank());
      if (!loaders) continue;
      for (const Files files : {Files::loaded, Files::at_load}) {
        const Resume resume = find_checkpoint(loaders, "auto", folder, files);
        REQUIRE(resume.checkpoint);
        CHECK(resume.notes.empty());
        CHECK(resume.checkpoint->proven == (files == Files::loaded));
        CHECK(resume.checkpoint->manifest.writers == from.ranks);
        const Shard wanted = shard_of(loaders.rank(), to.ranks, to.tensor, true);
        const Shard loaded = shard_of(loaders.rank(), to.ranks, to.tensor, false);
        load_checkpoint(loaders, *resume.checkpoint, loaded.pieces);
        CHECK_MESSAGE((loaded.memory == wanted.memory), from.ranks, "/", from.tensor, " -> ", to.ranks, "/", to.tensor);
        CHECK(read_checkpoint_state(loaders, *resume.checkpoint).deck == state_at(100).deck);
      }
    }
    world.barrier();
  }
}

TEST_CASE("two saves of one state are equal in every byte; a rank with nothing writes no shard") {
  const MpiComm world = MpiComm::world();
  const SharedScratch scratch(world);
  Shard shard = shard_of(0, 1, 1, true);
  if (world.rank() > 0) shard.pieces.clear();
  const Shard cut = shard_of(world.rank(), world.size(), 1, true);
  for (const char* name : {"a", "b"}) {
    save_checkpoint(world, scratch.path() / name, state_at(3), cut.pieces, {});
    save_checkpoint(world, scratch.path() / name, state_at(4), shard.pieces, {});
  }
  if (world.rank() == 0) {
    const auto first = contents(scratch.path() / "a/step-00000003");
    CHECK(first.size() == static_cast<std::size_t>(world.size()) + 2);
    CHECK((first == contents(scratch.path() / "b/step-00000003")));
    CHECK(contents(scratch.path() / "b/step-00000004").size() == 3);
    CHECK((contents(scratch.path() / "a/step-00000004") == contents(scratch.path() / "b/step-00000004")));
  }
}

TEST_CASE("damage is found by whichever rank has the file, and all ranks agree on what to do") {
  const MpiComm world = MpiComm::world();
  const SharedScratch scratch(world);
  const Shard shard = shard_of(world.rank(), world.size(), 1, true);
  for (const int step : {1, 2}) save_checkpoint(world, scratch.path(), state_at(step), shard.pieces, {});
  for (int writer = 0; writer < world.size(); ++writer) {
    const fs::path file = scratch.path() / "step-00000002" / ("shard-0000" + std::to_string(writer) + ".h5");
    const std::string good = slurp(file);
    world.barrier();
    if (world.rank() == 0) {
      const Shard theirs = shard_of(writer, world.size(), 1, true);
      const Piece& piece = *std::ranges::find_if(theirs.pieces, [](const Piece& p) { return p.size() > 0; });
      std::string bytes = good;
      bytes[bytes.find(std::string_view(static_cast<char*>(piece.data), static_cast<std::size_t>(piece.bytes())))] ^=
          16;
      spill(file, bytes);
    }
    world.barrier();
    const Resume resume = find_checkpoint(world, "auto", scratch.path());
    REQUIRE(resume.checkpoint);
    CHECK(resume.checkpoint->manifest.state.step == 1);
    CHECK(resume.damaged.size() == 1);
    CHECK(resume.notes[0].find(file.filename().string()) != std::string::npos);
    CHECK(resume.notes[0].find(" in " + file.filename().string() + " differs from its digest") != std::string::npos);
    CHECK(code_of([&] { open_checkpoint(world, scratch.path() / "step-00000002"); }) == 83);
    // Found while it loads, by whoever reads that file, whoever wants the bytes.
    const Shard loaded = shard_of(world.size() - 1 - world.rank(), world.size(), 1, false);
    const Checkpoint unproven = open_checkpoint(world, scratch.path() / "step-00000002", Files::at_load);
    CHECK(unproven.manifest.state.step == 2);
    try {
      load_checkpoint(world, unproven, loaded.pieces);
      FAIL("a damaged shard was loaded");
    } catch (const AgreedError& error) {
      CHECK(error.code() == ExitCode::checkpoint_damaged);
      CHECK(std::string(error.what()).find(" in " + file.filename().string() + " differs") != std::string::npos);
    }
    world.barrier();
    if (world.rank() == 0) spill(file, good);
    world.barrier();
  }
}

TEST_CASE("a failed write on one rank fails the save on all; the last checkpoint stays") {
  const MpiComm world = MpiComm::world();
  const SharedScratch scratch(world);
  const Shard shard = shard_of(world.rank(), world.size(), 1, true);
  save_checkpoint(world, scratch.path(), state_at(1), shard.pieces, {});
  const bool victim = world.rank() == world.size() - 1;
  rlimit old{};
  rlim_t limit = 0;
  SUBCASE("from the first byte") { limit = 0; }
  SUBCASE("inside the headers") { limit = 700; }
  SUBCASE("inside the data") { limit = 6000; }
  if (victim) {
    // The kernel refuses to let a file grow: what a full disk does, on one rank only.
    std::signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &old);
    const rlimit small{limit, old.rlim_max};
    setrlimit(RLIMIT_FSIZE, &small);
  }
  const int code = code_of([&] { save_checkpoint(world, scratch.path(), state_at(2), shard.pieces, {}); });
  if (victim) setrlimit(RLIMIT_FSIZE, &old);
  CHECK(code == 74);
  world.barrier();
  CHECK_FALSE(fs::exists(scratch.path() / "step-00000002"));
  CHECK(list_step_folders(scratch.path()).unfinished.empty());
  const Resume resume = find_checkpoint(world, "auto", scratch.path());
  REQUIRE(resume.checkpoint);
  CHECK(resume.checkpoint->manifest.state.step == 1);
  CHECK(resume.notes.empty());
  save_checkpoint(world, scratch.path(), state_at(2), shard.pieces, {});
  CHECK(open_checkpoint(world, scratch.path() / "step-00000002").manifest.state.step == 2);
}

TEST_CASE("a piece that is wrong on one rank, or missing, is told by all ranks") {
  const MpiComm world = MpiComm::world();
  const SharedScratch scratch(world);
  Shard shard = shard_of(world.rank(), world.size(), 1, true);
  const bool last = world.rank() == world.size() - 1;
  const std::string name = shard.pieces[0].dataset;
  if (last) shard.pieces[0].dataset = "/model/bad name";
  CHECK(code_of([&] { save_checkpoint(world, scratch.path(), state_at(1), shard.pieces, {}); }) == 70);
  if (last) shard.pieces[0].dataset = name;
  if (last) shard.pieces[0].flat_end -= 1;
  CHECK(code_of([&] { save_checkpoint(world, scratch.path(), state_at(1), shard.pieces, {}); }) == 70);
  world.barrier();
  CHECK(list_step_folders(scratch.path()).unfinished.empty());
  shard = shard_of(world.rank(), world.size(), 1, true);
  save_checkpoint(world, scratch.path(), state_at(1), shard.pieces, {});
  const Checkpoint checkpoint = open_checkpoint(world, scratch.path());
  if (last) shard.pieces[0].dataset = "/model/other";
  CHECK(code_of([&] { load_checkpoint(world, checkpoint, shard.pieces); }) == 84);
}

TEST_CASE("every rank proves that it can write") {
  const MpiComm world = MpiComm::world();
  const SharedScratch scratch(world);
  check_checkpoint_dir(world, scratch.path() / "new");
  world.barrier();
  CHECK(fs::is_empty(scratch.path() / "new"));
}
