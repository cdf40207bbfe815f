// SPDX-License-Identifier: Apache-2.0
/// Shards that somebody who means harm has made, with right digests: each is refused, at once, with little memory, and
/// without a look at another file.
#include <doctest/doctest.h>
#include <hdf5.h>
#include <sys/resource.h>

#include <cstring>
#include <functional>

#include "damage.hpp"

using namespace llmtrain;
using namespace checkpoint_test;

namespace {

constexpr hsize_t huge = hsize_t{1} << 60;
constexpr const char* secret = "the contents of another file";

/// How a piece is stored; the defaults are those of a good shard: 13 x 6 floats of /model/embed_tokens/weight.
struct Make {
  const char* path = "/model/embed_tokens/weight";
  hid_t type = H5T_IEEE_F32LE;
  hsize_t elements = 78;
  std::vector<std::int64_t> shape = {13, 6};
  std::int64_t begin = 0;
  std::int64_t end = 78;
  bool writes = true;
  bool digest_of_any_length = false;
  std::function<void(hid_t properties)> layout = [](hid_t properties) { H5Pset_layout(properties, H5D_CONTIGUOUS); };
  std::function<void(hid_t file)> beside = [](hid_t) {};  ///< what else is in the file
};

void integers(hid_t dataset, const char* name, const std::vector<std::int64_t>& values) {
  const hsize_t count = values.size();
  const hid_t space = H5Screate_simple(1, &count, nullptr);
  const hid_t made = H5Acreate2(dataset, name, H5T_STD_I64LE, space, H5P_DEFAULT, H5P_DEFAULT);
  REQUIRE(H5Awrite(made, H5T_NATIVE_INT64, values.data()) >= 0);
  H5Aclose(made);
}

void digest(hid_t dataset, bool any_length) {
  const hid_t type = H5Tcopy(H5T_C_S1), space = H5Screate(H5S_SCALAR);
  H5Tset_size(type, any_length ? H5T_VARIABLE : 32);
  const std::string zeros(32, '0');
  const char* const text = zeros.c_str();
  const hid_t made = H5Acreate2(dataset, "digest", type, space, H5P_DEFAULT, H5P_DEFAULT);
  REQUIRE(H5Awrite(made, type, any_length ? static_cast<const void*>(&text) : text) >= 0);
  H5Aclose(made);
}

/// Replaces the only shard of a checkpoint by one with a single piece, and its manifest by one of format 1.0: with places,
/// a load has nothing to ask of HDF5.
void make_shard(const fs::path& folder, const Make& make) {
  const fs::path path = folder / "shard-00000.h5";
  const hid_t access = H5Pcreate(H5P_FILE_ACCESS);
  H5Pset_fclose_degree(access, H5F_CLOSE_STRONG);
  const hid_t file = H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, access);
  REQUIRE(file >= 0);
  const hid_t links = H5Pcreate(H5P_LINK_CREATE), properties = H5Pcreate(H5P_DATASET_CREATE);
  H5Pset_create_intermediate_group(links, 1);
  make.layout(properties);
  const hid_t space = H5Screate_simple(1, &make.elements, nullptr);
  const hid_t dataset = H5Dcreate2(file, make.path, make.type, space, links, properties, H5P_DEFAULT);
  REQUIRE(dataset >= 0);
  const std::vector<double> values(static_cast<std::size_t>(std::min<hsize_t>(make.elements, 1000)), 1.0);
  if (make.writes) REQUIRE(H5Dwrite(dataset, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()) >= 0);
  integers(dataset, "global_shape", make.shape);
  integers(dataset, "slice_start", std::vector<std::int64_t>(make.shape.size(), 0));
  integers(dataset, "slice_shape", make.shape);
  integers(dataset, "flat_begin", {make.begin});
  integers(dataset, "flat_end", {make.end});
  digest(dataset, make.digest_of_any_length);
  make.beside(file);
  REQUIRE(H5Fclose(file) >= 0);
  Manifest manifest = read_manifest(folder);
  manifest.tensors = {{make.path, DType::fp32, {13, 6}}};
  manifest.deck.reset();
  manifest.pieces.clear();
  spill(folder / "manifest.json", write_manifest(manifest));
  sign(folder);
}

/// Exit code of reading everything in the checkpoint.
int load(const fs::path& folder, std::string& message) {
  return code_of(
      [&] {
        const CheckpointReader reader(alone, open_checkpoint(alone, folder));
        std::vector<float> values(78);
        const Piece whole{"/model/embed_tokens/weight", DType::fp32, {13, 6}, {0, 0}, {13, 6}, 0, 78, values.data()};
        reader.read(std::span(&whole, 1));
      },
      &message);
}

/// Peak resident memory of this process, in KiB.
long peak() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss;
}

struct Hostile {
  const char* name;
  Make make;
};

/// A good piece but for what `change` makes of it.
template <class Change>
Make with(Change change) {
  Make make;
  change(make);
  return make;
}

/// A good piece and something beside it.
Make beside(std::function<void(hid_t)> add) {
  return with([&](Make& m) { m.beside = std::move(add); });
}

/// Pieces whose numbers or storage are not what they may be.
std::vector<Hostile> hostile_pieces(const std::string& other_file) {
  return {
      {"2^60 elements, none stored", with([](Make& m) {
         m.elements = huge;
         m.shape = {1 << 30, 1 << 30};
         m.end = static_cast<std::int64_t>(huge);
         m.writes = false;
       })},
      {"a range of 2^60 elements", with([](Make& m) { m.end = static_cast<std::int64_t>(huge); })},
      {"a volume that overflows", with([](Make& m) {
         m.shape = {INT64_MAX, INT64_MAX};
       })},
      {"a negative range", with([](Make& m) { m.begin = -4; })},
      {"a negative extent", with([](Make& m) {
         m.shape = {-13, -6};
       })},
      {"an extent of a million numbers", with([](Make& m) { m.shape.assign(7000, 1); })},
      {"nothing stored", with([](Make& m) { m.writes = false; })},
      {"external storage", with([&](Make& m) {
         m.layout = [other_file](hid_t p) { H5Pset_external(p, other_file.c_str(), 0, 78 * 4); };
         m.writes = false;
       })},
      {"chunks", with([](Make& m) {
         m.layout = [](hid_t p) {
           const hsize_t chunk = 13;
           H5Pset_chunk(p, 1, &chunk);
         };
       })},
      {"a filter", with([](Make& m) {
         m.layout = [](hid_t p) {
           const hsize_t chunk = 13;
           H5Pset_chunk(p, 1, &chunk);
           H5Pset_shuffle(p);
           H5Pset_fletcher32(p);
         };
       })},
      {"a filter that nobody knows", with([](Make& m) {
         m.layout = [](hid_t p) {
           const hsize_t chunk = 13;
           H5Pset_chunk(p, 1, &chunk);
           H5Pset_filter(p, 31999, H5Z_FLAG_OPTIONAL, 0, nullptr);
         };
       })},
      {"compact storage", with([](Make& m) { m.layout = [](hid_t p) { H5Pset_layout(p, H5D_COMPACT); }; })},
      {"another element type", with([](Make& m) { m.type = H5T_IEEE_F32BE; })},
      {"a digest of any length", with([](Make& m) { m.digest_of_any_length = true; })},
  };
}

/// What else a file may hold.
std::vector<Hostile> hostile_objects(const std::string& other_file) {
  return {
      {"a soft link", beside([](hid_t f) { H5Lcreate_soft("/model", f, "/again", H5P_DEFAULT, H5P_DEFAULT); })},
      {"a soft link to nothing", beside([](hid_t f) { H5Lcreate_soft("/none", f, "/x", H5P_DEFAULT, H5P_DEFAULT); })},
      {"an external link", beside([other_file](hid_t f) {
         H5Lcreate_external(other_file.c_str(), "/x", f, "/elsewhere", H5P_DEFAULT, H5P_DEFAULT);
       })},
      {"a circle of groups",
       beside([](hid_t f) { H5Lcreate_hard(f, "/", f, "/model/root", H5P_DEFAULT, H5P_DEFAULT); })},
      {"a name that is not allowed", beside([](hid_t f) {
         H5Lcreate_hard(f, "/model/embed_tokens/weight", f, "/model/.. weight", H5P_DEFAULT, H5P_DEFAULT);
       })},
      {"a tensor twice", beside([](hid_t f) {
         H5Lcreate_hard(f, "/model/embed_tokens/weight", f, "/model/embed_tokens/weight+1", H5P_DEFAULT, H5P_DEFAULT);
       })},
      {"a stored type",
       beside([](hid_t f) { H5Tcommit2(f, "/type", H5Tcopy(H5T_IEEE_F32LE), H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT); })},
  };
}

}  // namespace

TEST_CASE("a shard like ours, made by other means, is read") {
  const Scratch scratch;
  const fs::path folder = save_at(scratch.path(), 1).folder;
  make_shard(folder, {});
  std::string message;
  CHECK_MESSAGE(load(folder, message) == 0, message);
}

TEST_CASE("hostile shards are 83, whatever their digests say") {
  const Scratch scratch;
  const fs::path folder = save_at(scratch.path(), 1).folder;
  const std::string other = (scratch.path() / "other").string();
  spill(other, std::string(secret) + std::string(1000, 'x'));
  const long before = peak();
  std::vector<Hostile> all = hostile_pieces(other);
  std::ranges::move(hostile_objects(other), std::back_inserter(all));
  for (const auto& [name, make] : all) {
    make_shard(folder, make);
    std::string message;
    CHECK_MESSAGE(load(folder, message) == 83, name, ": ", message);
    CHECK_MESSAGE(message.find("contents of another") == std::string::npos, name);
    CHECK_MESSAGE(tool({"verify", folder.string()}) == 83, name);
  }
  CHECK(peak() - before < 64 * 1024);
}

TEST_CASE("headers damaged in any byte end a look inside in time, and crash nobody") {
  const Scratch scratch;
  const fs::path folder = save_at(scratch.path(), 1).folder;
  make_shard(folder, {});
  const std::string good = slurp(folder / "shard-00000.h5");
  int told = 0;
  for (std::size_t at = 0; at < good.size(); at += 97) {
    std::string bytes = good;
    bytes[at] = static_cast<char>(~bytes[at]);
    spill(folder / "shard-00000.h5", bytes);
    told += damaged_tensors(folder, "shard-00000.h5").empty() ? 0 : 1;
    CHECK(code_of([&] { open_checkpoint(alone, folder); }) == 83);  // the digest stops it before HDF5 opens the file
  }
  CHECK(told > 0);
}
