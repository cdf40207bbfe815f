// SPDX-License-Identifier: Apache-2.0
/// Save, find, verify and load with one process: damage of every kind, what lies around, retention, the tools.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <random>

#include "checkpoint_fixture.hpp"
#include "llmtrain/base/error.hpp"
#include "llmtrain/checkpoint/folders.hpp"
#include "llmtrain/checkpoint/h5_writer.hpp"
#include "llmtrain/checkpoint/loader.hpp"
#include "llmtrain/checkpoint/saver.hpp"
#include "llmtrain/tools/tool.hpp"

using namespace llmtrain;
using namespace checkpoint_test;
namespace fs = std::filesystem;

namespace {

const MpiComm alone;

template <class Action>
int code_of(Action action) {
  try {
    action();
  } catch (const Error& error) {
    return static_cast<int>(error.code());
  }
  return 0;
}

SaveResult save_at(const fs::path& folder, std::int64_t step, std::int64_t keep = 10) {
  const Shard shard = shard_of(0, 1, 1, true);
  return save_checkpoint(alone, folder, state_at(step), shard.pieces, {keep, true, {}});
}

int tool(std::vector<std::string> args) {
  int result = 0;
  const int code = code_of([&] { result = tool_checkpoint(MpiComm{}, args); });
  return code != 0 ? code : result;
}

std::string run_program(const std::string& command) {
  std::string output;
  FILE* pipe = popen(command.c_str(), "r");
  REQUIRE(pipe != nullptr);
  std::array<char, 4096> buffer;
  while (const std::size_t got = std::fread(buffer.data(), 1, buffer.size(), pipe)) output.append(buffer.data(), got);
  CHECK_MESSAGE(pclose(pipe) == 0, command);
  return output;
}

bool has_program(const char* name) {
  return std::system((std::string("command -v ") + name + " >/dev/null 2>&1").c_str()) == 0;
}

void flip(const fs::path& file, std::size_t bit) {
  std::string bytes = slurp(file);
  bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << (bit % 8)));
  spill(file, bytes);
}

/// Makes the manifest agree with changed files, as somebody who means harm would.
void sign(const fs::path& folder) {
  Manifest manifest = read_manifest(folder);
  for (ManifestFile& file : manifest.files) file.size = static_cast<std::int64_t>(fs::file_size(folder / file.name));
  spill(folder / "manifest.json", write_manifest(manifest));
  for (const std::string& problem : examine_checkpoint(alone, folder).problems) {
    const auto at = problem.find("(digest ");
    REQUIRE(at != std::string::npos);
    for (ManifestFile& file : manifest.files) {
      if (problem.starts_with(file.name + " ")) file.digest = problem.substr(at + 8, 32);
    }
  }
  spill(folder / "manifest.json", write_manifest(manifest));
  REQUIRE(examine_checkpoint(alone, folder).problems.empty());
}

}  // namespace

TEST_CASE("what is saved is found and loaded, bit for bit") {
  const Scratch scratch;
  const SaveResult saved = save_at(scratch.path() / "a/b", 100);
  CHECK(saved.folder == scratch.path() / "a/b/step-00000100");
  const Resume resume = find_checkpoint(alone, "auto", scratch.path() / "a/b");
  REQUIRE(resume.checkpoint);
  CHECK(resume.notes.empty());
  const CheckpointState state = read_checkpoint_state(alone, *resume.checkpoint);
  const CheckpointState expected = state_at(100);
  CHECK(state.deck == expected.deck);
  CHECK(state.counters == expected.counters);
  CHECK(state.identity == expected.identity);
  CHECK(state.samples == expected.samples);
  CHECK(state.run_id == expected.run_id);
  const Shard wanted = shard_of(0, 1, 1, true);
  const Shard loaded = shard_of(0, 1, 1, false);
  load_checkpoint(alone, *resume.checkpoint, loaded.pieces);
  CHECK(loaded.memory == wanted.memory);
  std::int64_t bytes = 0;
  for (const auto& [name, file] : contents(saved.folder)) bytes += static_cast<std::int64_t>(file.size());
  CHECK(saved.bytes == bytes);
}

TEST_CASE("equal states give equal files, wherever and whenever they are saved") {
  const Scratch scratch;
  const auto first = contents(save_at(scratch.path() / "one", 7).folder);
  ::usleep(1'100'000);  // a clock of seconds in a file would show
  const auto second = contents(save_at(scratch.path() / "another", 7).folder);
  CHECK(first.size() == 3);
  CHECK((first == second));
}

TEST_CASE("two pieces of a tensor on one rank fit in one shard") {
  const Scratch scratch;
  std::array<float, 6> values = {0, 1, 2, 3, 4, 5};
  const auto piece = [&](std::int64_t begin, std::int64_t end, float* data) {
    return Piece{"/model/x", DType::fp32, {2, 3}, {0, 0}, {2, 3}, begin, end, data};
  };
  const std::vector<Piece> pieces = {piece(4, 6, &values[4]), piece(0, 1, &values[0]), piece(1, 4, &values[1])};
  const SaveResult saved = save_checkpoint(alone, scratch.path(), state_at(1), pieces, {});
  std::array<float, 6> read = {};
  const std::vector<Piece> wanted = {piece(0, 6, read.data())};
  load_checkpoint(alone, open_checkpoint(alone, saved.folder), wanted);
  CHECK(read == values);
}

TEST_CASE("pieces that do not make their tensor whole are not saved, and leave nothing behind") {
  const Scratch scratch;
  Shard shard = shard_of(0, 1, 1, true);
  shard.pieces[0].flat_end -= 1;
  CHECK(code_of([&] { save_checkpoint(alone, scratch.path(), state_at(1), shard.pieces, {}); }) == 70);
  CHECK(fs::is_empty(scratch.path()));
}

TEST_CASE("any flipped bit and any truncation in any file is found") {
  const Scratch scratch;
  const fs::path folder = save_at(scratch.path(), 100).folder;
  const auto files = contents(folder);
  std::mt19937 random(3);
  int found = 0;
  for (int round = 0; round < 130; ++round) {
    auto file = files.begin();
    std::advance(file, static_cast<long>(random() % files.size()));
    if (round < 100) {
      flip(folder / file->first, random() % (file->second.size() * 8));
    } else {
      spill(folder / file->first, file->second.substr(0, random() % file->second.size()));
    }
    found += examine_checkpoint(alone, folder).problems.empty() ? 0 : 1;
    spill(folder / file->first, file->second);
  }
  CHECK(found == 130);
  CHECK(examine_checkpoint(alone, folder).problems.empty());
  spill(folder / "shard-00000.h5", files.at("shard-00000.h5") + std::string(100, '\0'));
  CHECK(tool({"verify", scratch.path().string()}) == 83);
  fs::remove(folder / "shard-00000.h5");
  CHECK(tool({"verify", folder.string()}) == 83);
}

TEST_CASE("auto: the newest that verifies; damaged ones are named and kept, unfinished ones removed") {
  const Scratch scratch;
  for (const int step : {10, 20, 30}) save_at(scratch.path(), step);
  flip(scratch.path() / "step-00000030/shard-00000.h5", 40000);
  fs::create_directory(scratch.path() / "step-00000040.tmp.00ab12cd");
  spill(scratch.path() / "step-00000040.tmp.00ab12cd/shard-00000.h5", "half");
  fs::create_directory(scratch.path() / "step-40");
  spill(scratch.path() / "notes.txt", "mine");
  const Resume resume = find_checkpoint(alone, "auto", scratch.path());
  REQUIRE(resume.checkpoint);
  CHECK(resume.checkpoint->manifest.state.step == 20);
  CHECK(resume.damaged == std::vector<std::string>{"step-00000030"});
  CHECK(resume.notes.size() == 3);  // the unfinished one, the damaged one, and latest that names it
  CHECK_FALSE(fs::exists(scratch.path() / "step-00000040.tmp.00ab12cd"));
  CHECK(fs::exists(scratch.path() / "step-00000030"));
  CHECK(fs::exists(scratch.path() / "step-40"));
  const SaveResult next = save_at(scratch.path(), 50, 1);  // never prunes a damaged one, in later runs neither
  CHECK(next.notes == std::vector<std::string>{"removed step-00000020", "removed step-00000010"});
  CHECK(fs::exists(scratch.path() / "step-00000030"));
  save_at(scratch.path(), 10);
  CHECK(code_of([&] { find_checkpoint(alone, scratch.path().string(), {}); }) == 83);
  CHECK(code_of([&] { find_checkpoint(alone, (scratch.path() / "step-00000030").string(), {}); }) == 83);
  CHECK(code_of([&] { find_checkpoint(alone, (scratch.path() / "step-00000010/").string(), {}); }) == 0);
  CHECK_FALSE(find_checkpoint(alone, "never", scratch.path()).checkpoint);
}

TEST_CASE("never a fresh start where steps are, never from a path that does not exist") {
  const Scratch scratch;
  CHECK_FALSE(find_checkpoint(alone, "auto", scratch.path() / "none").checkpoint);
  CHECK_FALSE(find_checkpoint(alone, "auto", scratch.path()).checkpoint);
  CHECK(code_of([&] { find_checkpoint(alone, "/no/such", scratch.path()); }) == 66);
  CHECK(code_of([&] { find_checkpoint(alone, scratch.path().string(), scratch.path()); }) == 66);
  fs::create_directory(scratch.path() / "step-00000001");  // without a manifest
  CHECK(code_of([&] { find_checkpoint(alone, "auto", scratch.path()); }) == 83);
}

TEST_CASE("latest: whatever it says is only a warning") {
  const Scratch scratch;
  save_at(scratch.path(), 10);
  CHECK(slurp(scratch.path() / "latest") == "step-00000010\n");
  for (const char* text : {"", "step-00000099\n", "../../etc", "junk\n\n", "step-00000010\nx"}) {
    spill(scratch.path() / "latest", text);
    const Resume resume = find_checkpoint(alone, "auto", scratch.path());
    REQUIRE(resume.checkpoint);
    CHECK(resume.notes.size() == 1);
  }
  fs::remove(scratch.path() / "latest");
  CHECK(find_checkpoint(alone, "auto", scratch.path()).checkpoint);
}

TEST_CASE("retention: the newest stay, protected, foreign and newer ones too") {
  const Scratch scratch;
  for (const int step : {1, 2, 3, 90}) save_at(scratch.path(), step);
  fs::create_directory(scratch.path() / "step-best");
  const Shard shard = shard_of(0, 1, 1, true);
  const SaveOptions options{2, true, {"step-00000001"}};
  const SaveResult saved = save_checkpoint(alone, scratch.path(), state_at(4), shard.pieces, options);
  CHECK(saved.notes == std::vector<std::string>{"removed step-00000002"});
  for (const char* name : {"step-00000001", "step-00000003", "step-00000004", "step-00000090", "step-best"}) {
    CHECK_MESSAGE(fs::exists(scratch.path() / name), name);
  }
  CHECK_FALSE(fs::exists(scratch.path() / "step-00000002"));
}

TEST_CASE("a step that is there already is replaced; a damaged one is kept under another name") {
  const Scratch scratch;
  save_at(scratch.path(), 5);
  CHECK(save_at(scratch.path(), 5).notes.empty());
  flip(scratch.path() / "step-00000005/shard-00000.h5", 9);
  CHECK(save_at(scratch.path(), 5).notes.size() == 1);
  CHECK(fs::exists(scratch.path() / "step-00000005.damaged/manifest.json"));
  CHECK(find_checkpoint(alone, "auto", scratch.path()).checkpoint);
  CHECK(std::ranges::distance(fs::directory_iterator(scratch.path())) == 3);
}

TEST_CASE("files of another step, of a newer format, and links are refused; strangers are only noted") {
  const Scratch scratch;
  const fs::path ten = save_at(scratch.path(), 10).folder;
  const fs::path twenty = save_at(scratch.path(), 20).folder;
  spill(twenty / "extra.bin", "x");
  Examination examination = examine_checkpoint(alone, twenty);
  CHECK(examination.problems.empty());
  CHECK(examination.notes.size() == 1);
  spill(twenty / "manifest.json", slurp(ten / "manifest.json"));
  CHECK_FALSE(examine_checkpoint(alone, twenty).problems.empty());
  fs::rename(ten / "shard-00000.h5", scratch.path() / "elsewhere.h5");
  fs::create_symlink(scratch.path() / "elsewhere.h5", ten / "shard-00000.h5");
  CHECK_FALSE(examine_checkpoint(alone, ten).problems.empty());
}

TEST_CASE("another model is 84, for a tensor, a shape and a type") {
  const Scratch scratch;
  const Checkpoint checkpoint = open_checkpoint(alone, save_at(scratch.path(), 10).folder);
  for (int kind = 0; kind < 3; ++kind) {
    Shard shard = shard_of(0, 1, 1, false);
    Piece& piece = shard.pieces[4];  // bf16: another type of the same width keeps the memory right
    if (kind == 0) piece.dataset += "x";
    if (kind == 1) std::swap(piece.global_shape[0], piece.global_shape[1]);
    if (kind == 1) std::swap(piece.slice_shape[0], piece.slice_shape[1]);
    if (kind == 2) piece.dtype = DType::fp16;
    CHECK(code_of([&] { load_checkpoint(alone, checkpoint, shard.pieces); }) == 84);
  }
}

TEST_CASE("a shard that is not plain is refused in spite of right digests") {
  const Scratch scratch;
  const fs::path folder = save_at(scratch.path(), 10).folder;
  const std::string shard = (folder / "shard-00000.h5").string();
  const std::string good = slurp(shard);
  const auto load = [&] { CheckpointReader(alone, open_checkpoint(alone, folder)); };
  CHECK(code_of(load) == 0);
  spill(shard, slurp(folder / "checkpoint.h5"));  // virtual datasets
  sign(folder);
  CHECK(code_of(load) == 83);
  spill(shard, "not HDF5 at all");
  sign(folder);
  CHECK(code_of(load) == 83);
  if (!has_program("h5repack")) {
    MESSAGE("h5repack is not installed: chunks and filters are not tried");
    return;
  }
  spill(shard, good);
  const std::string packed = (scratch.path() / "packed.h5").string();
  run_program("h5repack -l CHUNK=1 -f GZIP=1 " + shard + " " + packed);
  spill(shard, slurp(packed));
  sign(folder);
  CHECK(code_of(load) == 83);
}

TEST_CASE("checkpoint.h5 shows whole tensors to h5dump, after a move too") {
  if (!has_program("h5dump")) {
    MESSAGE("h5dump is not installed: virtual datasets are not tried");
    return;
  }
  const Scratch scratch;
  fs::rename(save_at(scratch.path() / "a", 10).folder, scratch.path() / "moved");
  const std::string file = (scratch.path() / "moved/checkpoint.h5").string();
  const std::string header = run_program("h5dump -H -d /model/embed_tokens/weight " + file);
  CHECK(header.find("( 13, 6 )") != std::string::npos);
  const std::string values = run_program("h5dump -y -w 0 -d /model/layers/0/self_attn/o_proj/weight " + file);
  for (int i = 0; i < 48; ++i) CHECK(values.find(std::to_string(2000 + i) + ".5") != std::string::npos);
  CHECK(run_program("h5dump -d /deck " + file).find("layers: 1") != std::string::npos);
  CHECK(run_program("h5dump -y -d /state/counters/skipped " + file).find(" 3") != std::string::npos);
  fs::remove(scratch.path() / "moved/shard-00000.h5");
  CHECK(run_program("h5dump -y -d /model/norm/weight " + file).find("nan") != std::string::npos);
}

TEST_CASE("tools: ls, info, verify, diff and index") {
  const Scratch scratch;
  const std::string all = scratch.path().string();
  const std::string one = save_at(scratch.path(), 10).folder.string();
  CHECK(tool({"ls", all}) == 0);
  CHECK(tool({"info", all, "--tensors", "--deck"}) == 0);
  CHECK(tool({"verify", all}) == 0);
  CHECK(tool({"diff", one, one}) == 0);
  Shard shard = shard_of(0, 1, 1, true);
  shard.memory[2][0] ^= std::byte{1};
  const Scratch other;
  const std::string two = save_checkpoint(alone, other.path(), state_at(10), shard.pieces, {}).folder.string();
  CHECK(tool({"diff", one, two}) == 1);
  const std::string index = slurp(one + "/checkpoint.h5");
  fs::remove(one + "/checkpoint.h5");
  CHECK(tool({"verify", one}) == 83);
  CHECK(tool({"index", one}) == 0);
  CHECK((slurp(one + "/checkpoint.h5") == index));
  CHECK(tool({"verify", one}) == 0);
  CHECK(tool({}) == 64);
  CHECK(tool({"list", all}) == 64);
  CHECK(tool({"diff", one}) == 64);
  CHECK(tool({"verify", all, "--fast"}) == 64);
  CHECK(tool({"verify", "/no/such"}) == 66);
}

TEST_CASE("the folder is proved to be writable, and left as it was") {
  const Scratch scratch;
  check_checkpoint_dir(alone, scratch.path() / "new");
  CHECK(fs::is_empty(scratch.path() / "new"));
  spill(scratch.path() / "file", "x");
  CHECK(code_of([&] { check_checkpoint_dir(alone, scratch.path() / "file"); }) == 73);
  CHECK(code_of([&] { check_checkpoint_dir(alone, scratch.path() / "file/below"); }) == 73);
}

TEST_CASE("H5Writer: arrays, scalars, texts and attributes; a file that cannot be made is 73") {
  const Scratch scratch;
  const std::string path = (scratch.path() / "dump.h5").string();
  H5Writer file(path);
  const std::vector<std::int64_t> shape = {2, 2};
  const std::vector<float> values = {1.5F, 2.5F, 3.5F, 4.5F};
  file.write<float>("/logits/a", shape, values);
  file.write_text("/note", "hello");
  file.attribute("/logits/a", "step", std::int64_t{41});
  file.attribute("/logits/a", "unit", "none");
  CHECK_THROWS_AS(file.write_text("/note", "twice"), Error);
  file.close();
  if (has_program("h5dump")) {
    const std::string text = run_program("h5dump " + path);
    for (const char* part : {"3.5, 4.5", "hello", "41", "none"}) {
      CHECK_MESSAGE(text.find(part) != std::string::npos, part);
    }
  }
  CHECK(code_of([&] { H5Writer(scratch.path() / "no/such/folder.h5"); }) == 73);
}
