// SPDX-License-Identifier: Apache-2.0
/// Save, find, verify and load with one process: damage of every kind, what lies around, retention, the tools.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <random>

#include "damage.hpp"
#include "llmtrain/base/error.hpp"
#include "llmtrain/checkpoint/folders.hpp"
#include "llmtrain/checkpoint/h5_writer.hpp"
#include "llmtrain/checkpoint/loader.hpp"
#include "llmtrain/checkpoint/saver.hpp"
#include "llmtrain/tools/tool.hpp"

using namespace llmtrain;
using namespace checkpoint_test;

namespace {

std::int64_t from_environment(const char* name, std::int64_t otherwise) {
  const char* const text = std::getenv(name);
  return text == nullptr ? otherwise : std::atoll(text);
}

/// The tensor, or the deck, that has a byte of a file, or "".
std::string tensor_at(const Manifest& manifest, const std::string& file, std::int64_t byte) {
  const StoredDeck& deck = *manifest.deck;
  if (file == "shard-00000.h5" && byte >= deck.offset && byte < deck.offset + deck.bytes) return "/deck";
  const auto hit = std::ranges::find_if(manifest.pieces, [&](const StoredPiece& stored) {
    return stored.shard == file && byte >= stored.offset && byte < stored.end();
  });
  return hit == manifest.pieces.end() ? "" : hit->piece.dataset;
}

/// A message must name the file and the tensor, and no other.
void check_names(const std::string& message, const std::string& file, const std::string& tensor) {
  CHECK(message.find(file) != std::string::npos);
  CHECK((message.find(" in " + file + " differs") != std::string::npos) == !tensor.empty());
  CHECK(message.find(tensor + (tensor.empty() ? "" : " in ")) != std::string::npos);
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

TEST_CASE("any flipped bit and any truncation is found by verify, and at load where the load reads the file") {
  const Scratch scratch;
  save_at(scratch.path(), 99);
  const fs::path folder = save_at(scratch.path(), 100).folder;
  auto files = contents(folder);
  files["../latest"] = slurp(scratch.path() / "latest");
  const std::int64_t flips = from_environment("LLMTRAIN_TEST_FLIPS", 100);
  const std::int64_t cuts = from_environment("LLMTRAIN_TEST_CUTS", 30);
  std::mt19937 random(3);
  std::map<std::string, int> flipped, cut;
  int named = 0;
  const Shard loaded = shard_of(0, 1, 1, false);
  const Manifest manifest = read_manifest(folder);
  for (std::int64_t round = 0; round < flips + cuts; ++round) {
    auto file = files.begin();
    std::advance(file, static_cast<long>(random() % files.size()));
    const std::string& name = file->first;
    CAPTURE(name);
    CAPTURE(round);
    ++(round < flips ? flipped : cut)[name];
    const auto bit = static_cast<std::int64_t>(random() % (file->second.size() * 8));
    if (round < flips) {
      flip(folder / name, static_cast<std::size_t>(bit));
    } else {
      spill(folder / name, file->second.substr(0, random() % file->second.size()));
    }
    const bool is_shard = name.starts_with("shard-"), is_latest = name == "../latest";
    const std::string latest = slurp(scratch.path() / "latest");
    // A `latest` that names an older step is what a crash leaves: a note, no damage.
    const bool is_older = is_latest && latest == "step-00000099\n";
    CHECK(tool({"verify", is_latest ? scratch.path().string() : folder.string()}) == (is_older ? 0 : 83));
    std::string message;
    const int code = code_of([&] { open_checkpoint(alone, folder); }, &message);
    CHECK(code == (is_shard || name == "manifest.json" ? 83 : 0));
    if (code == 83) CHECK(message.find(name) != std::string::npos);
    if (is_shard && round < flips) {
      std::string at_once;
      CHECK(load_at_once(folder, loaded, &at_once) == 83);
      const std::string tensor = tensor_at(manifest, name, bit / 8);
      for (const std::string& told : {message, at_once}) check_names(told, name, tensor);
      named += tensor.empty() ? 0 : 1;
    } else {
      CHECK(load_at_once(folder, loaded) == code);
    }
    const Resume resume = find_checkpoint(alone, "auto", scratch.path());
    REQUIRE(resume.checkpoint);
    CHECK(resume.checkpoint->manifest.state.step == (code == 83 ? 99 : 100));
    if (is_latest) CHECK(resume.notes.size() == 1);
    spill(folder / name, file->second);
  }
  CHECK(named > 0);
  for (const auto& [name, file] : files) MESSAGE(name, ": ", flipped[name], " flips, ", cut[name], " truncations");
  MESSAGE("of the flips in shards ", named, " in a tensor, which is named");
  CHECK(tool({"verify", scratch.path().string()}) == 0);
  spill(folder / "shard-00000.h5", files.at("shard-00000.h5") + std::string(100, '\0'));
  CHECK(tool({"verify", scratch.path().string()}) == 83);
  fs::remove(folder / "shard-00000.h5");
  CHECK(tool({"verify", folder.string()}) == 83);
}

TEST_CASE("without checkpoint.h5, or with a damaged one, a run goes on; index makes it again") {
  const Scratch scratch;
  const fs::path folder = save_at(scratch.path(), 7).folder;
  const std::string good = slurp(folder / "checkpoint.h5");
  spill(folder / "checkpoint.h5", "rubbish");
  CHECK(find_checkpoint(alone, "auto", scratch.path()).checkpoint);
  CHECK(tool({"verify", folder.string()}) == 83);
  CHECK(tool({"index", folder.string()}) == 0);
  CHECK((slurp(folder / "checkpoint.h5") == good));
}

TEST_CASE("prune keeps the newest that verify, and what is damaged") {
  const Scratch scratch;
  for (const int step : {1, 2, 3, 4, 5}) save_at(scratch.path(), step);
  const std::string all = scratch.path().string();
  flip(scratch.path() / "step-00000005/shard-00000.h5", 9999);
  CHECK(tool({"prune", all, "--keep", "2"}) == 0);
  for (const int step : {1, 2}) CHECK_FALSE(fs::exists(scratch.path() / step_folder_name(step)));
  for (const int step : {3, 4, 5}) CHECK(fs::exists(scratch.path() / step_folder_name(step)));
  CHECK(tool({"prune", all}) == 64);
  CHECK(tool({"prune", all, "--keep", "0"}) == 64);
  CHECK(tool({"ls", all, "--keep", "2"}) == 64);
  CHECK(tool({"prune", all + "/none", "--keep", "1"}) == 66);
  for (const int step : {3, 4}) flip(scratch.path() / step_folder_name(step) / "shard-00000.h5", 9999);
  CHECK(tool({"prune", all, "--keep", "1"}) == 66);
  CHECK(fs::exists(scratch.path() / "step-00000003"));
}

TEST_CASE("a save in the background needs its memory until it is written, and is there when advance says so") {
  const Scratch scratch;
  Shard shard = shard_of(0, 1, 1, true);
  Save save(alone, scratch.path(), state_at(3), shard.pieces, {2, true, {}, true});
  while (save.is_working()) {
  }
  CHECK_FALSE(fs::exists(scratch.path() / "step-00000003"));
  CHECK_FALSE(save.advance());
  CHECK(save.is_written());
  for (auto& memory : shard.memory) std::ranges::fill(memory, std::byte{});
  while (!save.advance()) {
  }
  CHECK(fs::exists(scratch.path() / "step-00000003/manifest.json"));
  CHECK((contents(save.result().folder) == contents(save_at(scratch.path() / "other", 3).folder)));
  { const Save left(alone, scratch.path(), state_at(4), shard.pieces, {2, true, {}, true}); }
  CHECK(list_step_folders(scratch.path()).unfinished.empty());
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
