// SPDX-License-Identifier: Apache-2.0
/// Where the manifest says that tensors lie: without it, against HDF5, and against the bytes.
#include <doctest/doctest.h>
#include <hdf5.h>

#include <algorithm>

#include "damage.hpp"

using namespace llmtrain;
using namespace checkpoint_test;

TEST_CASE("a manifest of format 1.0, without places, loads what HDF5 finds, and proves the files first") {
  const Scratch scratch;
  const fs::path folder = save_at(scratch.path(), 10).folder;
  forget_places(folder);
  CHECK(slurp(folder / "manifest.json").find("\"version\": [1, 0]") != std::string::npos);
  CHECK(open_checkpoint(alone, folder, Files::at_load).proven);
  CHECK(tool({"verify", folder.string()}) == 0);
  const Shard loaded = shard_of(0, 1, 1, false);
  CHECK(load_at_once(folder, loaded) == 0);
  CHECK(loaded.memory == shard_of(0, 1, 1, true).memory);
  CHECK(read_checkpoint_state(alone, open_checkpoint(alone, folder)).deck == state_at(10).deck);
  const fs::path shard = folder / "shard-00000.h5";
  const std::string good = slurp(shard);
  const Shard wanted = shard_of(0, 1, 1, true);
  const auto& values = wanted.memory[0];
  const auto at = good.find(std::string_view(reinterpret_cast<const char*>(values.data()), values.size()));
  REQUIRE(at != std::string::npos);
  flip(shard, at * 8 + 100);
  std::string message;
  CHECK(load_at_once(folder, loaded, &message) == 83);
  CHECK(message.find("/model/embed_tokens/weight in shard-00000.h5 differs") != std::string::npos);
}

TEST_CASE("a shard whose HDF5 headers contradict the manifest loads what the manifest says, and verify finds it") {
  const Scratch scratch;
  const fs::path folder = save_at(scratch.path(), 10).folder;
  const std::string shard = (folder / "shard-00000.h5").string();
  const std::string good = slurp(shard);
  const auto change = [&](auto action) {
    spill(shard, good);
    const hid_t file = H5Fopen(shard.c_str(), H5F_ACC_RDWR, H5P_DEFAULT);
    REQUIRE(file >= 0);
    CHECK(action(file) >= 0);
    REQUIRE(H5Fclose(file) >= 0);
    sign(folder);
    CHECK(tool({"verify", folder.string()}) == 83);
    const Shard loaded = shard_of(0, 1, 1, false);
    CHECK(load_at_once(folder, loaded) == 0);
    CHECK(loaded.memory == shard_of(0, 1, 1, true).memory);
  };
  change([](hid_t file) {
    return H5Lmove(file, "/model/norm/weight", file, "/model/norm/other", H5P_DEFAULT, H5P_DEFAULT);
  });
  change([](hid_t file) { return H5Ldelete(file, "/model/norm/weight", H5P_DEFAULT); });
  change([](hid_t file) {
    const auto rename = [&](const char* from, const char* to) {
      return H5Lmove(file, from, file, to, H5P_DEFAULT, H5P_DEFAULT);
    };
    constexpr const char* q = "/model/layers/0/self_attn/q_proj/weight";
    constexpr const char* o = "/model/layers/0/self_attn/o_proj/weight";
    return std::min({rename(q, "/q"), rename(o, q), rename("/q", o)});
  });
  change([](hid_t file) { return H5Lmove(file, "/deck", file, "/old", H5P_DEFAULT, H5P_DEFAULT); });
}

TEST_CASE("places in the manifest that are not those of the bytes are refused, and no other file is read") {
  const Scratch scratch;
  const fs::path folder = save_at(scratch.path(), 10).folder;
  const Manifest good = read_manifest(folder);
  const Shard loaded = shard_of(0, 1, 1, false);
  const auto refused = [&](auto change) {
    Manifest manifest = good;
    change(manifest);
    spill(folder / "manifest.json", write_manifest(manifest));
    CHECK(load_at_once(folder, loaded) == 83);
    CHECK(code_of([&] { open_checkpoint(alone, folder); }) == 83);
    CHECK(tool({"verify", folder.string()}) == 83);
  };
  refused([](Manifest& m) {
    for (StoredPiece& stored : m.pieces) stored.offset -= 8;
  });
  refused([](Manifest& m) { m.pieces[3].offset += 1; });
  refused([](Manifest& m) {
    const auto of = [&](std::string_view name) {
      return std::ranges::find_if(m.pieces, [&](const StoredPiece& stored) { return stored.dataset == name; });
    };
    const auto q = of("/model/layers/0/self_attn/q_proj/weight"), o = of("/model/layers/0/self_attn/o_proj/weight");
    REQUIRE(q->piece.bytes() == o->piece.bytes());
    std::swap(q->offset, o->offset);
  });
  refused([](Manifest& m) { m.deck->offset += 1; });
  refused([](Manifest& m) { m.pieces[1].offset = m.pieces[0].offset; });
  refused([](Manifest& m) { m.pieces[0].offset = std::int64_t{1} << 60; });
  refused([](Manifest& m) { m.pieces[0].shard = "checkpoint.h5"; });
  refused([](Manifest& m) { m.pieces[0].shard = "../latest"; });
  refused([](Manifest& m) { std::swap(m.pieces[1].digest, m.pieces[2].digest); });
  spill(folder / "manifest.json", write_manifest(good));
  CHECK(load_at_once(folder, loaded) == 0);
}

TEST_CASE("a shard that is not plain is refused in spite of right digests") {
  const Scratch scratch;
  const fs::path folder = save_at(scratch.path(), 10).folder;
  const std::string shard = (folder / "shard-00000.h5").string();
  const std::string good = slurp(shard);
  const auto load = [&] { CheckpointReader(alone, open_checkpoint(alone, folder)); };
  forget_places(folder);
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
