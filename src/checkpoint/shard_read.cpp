// SPDX-License-Identifier: Apache-2.0
/// Reading of shards. The file's digest was checked before, but a digest says only that the file is the one described;
/// so everything that could make the library read another file, or allocate what a header claims, is refused.
#include <algorithm>

#include "files.hpp"
#include "h5_handle.hpp"
#include "llmtrain/base/error.hpp"
#include "shard.hpp"

namespace llmtrain {

namespace {

constexpr ExitCode damaged = ExitCode::checkpoint_damaged;
constexpr hsize_t max_extents = 8;
constexpr hsize_t max_objects = hsize_t{1} << 22;  // datasets and groups of one shard
constexpr int max_depth = 64;

h5::Id open_attribute(hid_t dataset, const char* name, const std::string& where) {
  return h5::checked(H5Aopen(dataset, name, H5P_DEFAULT), damaged, fmt::format("open {} of", name).c_str(), where);
}

/// An int64 attribute of at most eight values.
std::vector<std::int64_t> read_integers(hid_t dataset, const char* name, const std::string& where) {
  const h5::Id attribute = open_attribute(dataset, name, where);
  const h5::Id type(H5Aget_type(attribute.get()));
  const h5::Id space(H5Aget_space(attribute.get()));
  require(h5::dtype_of_type(type.get()) == DType::int64 && H5Sget_simple_extent_ndims(space.get()) <= 1, damaged,
          "{} of {} is not a list of integers", name, where);
  const hssize_t count = H5Sget_simple_extent_npoints(space.get());
  require(count >= 1 && count <= static_cast<hssize_t>(max_extents), damaged, "{} of {} has {} values", name, where,
          count);
  std::vector<std::int64_t> values(static_cast<std::size_t>(count));
  h5::check(H5Aread(attribute.get(), type.get(), values.data()), damaged, "read an attribute of", where);
  return values;
}

std::int64_t read_integer(hid_t dataset, const char* name, const std::string& where) {
  const std::vector<std::int64_t> values = read_integers(dataset, name, where);
  require(values.size() == 1, damaged, "{} of {} is not one integer", name, where);
  return values.front();
}

std::string read_digest(hid_t dataset, const std::string& where) {
  const h5::Id attribute = open_attribute(dataset, "digest", where);
  const h5::Id type(H5Aget_type(attribute.get()));
  const h5::Id space(H5Aget_space(attribute.get()));
  std::string digest(32, '\0');
  require(H5Tget_class(type.get()) == H5T_STRING && H5Tis_variable_str(type.get()) == 0 &&
              H5Tget_size(type.get()) == digest.size() && H5Sget_simple_extent_npoints(space.get()) == 1,
          damaged, "digest of {} is not 32 characters", where);
  h5::check(H5Aread(attribute.get(), type.get(), digest.data()), damaged, "read the digest of", where);
  require(digest.find_first_not_of("0123456789abcdef") == std::string::npos, damaged, "digest of {} is not hexadecimal",
          where);
  return digest;
}

/// Where a dataset's bytes begin. Refuses every storage but one contiguous block of `bytes` inside of a file.
std::int64_t place_of(hid_t dataset, std::int64_t bytes, hsize_t file_bytes, const std::string& where) {
  const h5::Id properties(H5Dget_create_plist(dataset));
  require(properties.valid() && H5Pget_layout(properties.get()) == H5D_CONTIGUOUS, damaged,
          "{} is not stored contiguously", where);
  require(H5Pget_external_count(properties.get()) == 0, damaged, "{} refers to other files", where);
  require(H5Pget_nfilters(properties.get()) == 0, damaged, "{} has filters", where);
  const haddr_t offset = H5Dget_offset(dataset);
  const auto size = static_cast<hsize_t>(bytes);
  require(H5Dget_storage_size(dataset) == size && offset != HADDR_UNDEF && size <= file_bytes &&
              offset <= file_bytes - size,
          damaged, "{} has no {} bytes of storage", where, bytes);
  return static_cast<std::int64_t>(offset);
}

}  // namespace

struct ShardFile::Impl {
  std::string name;
  std::string label;  // folder and file, for messages
  h5::Id file;
  hsize_t bytes = 0;  // of the file

  std::string where(const std::string& object) const { return label + object; }

  h5::Id open_dataset(const std::string& path) const {
    return h5::checked(H5Dopen2(file.get(), path.c_str(), H5P_DEFAULT), damaged, "open", where(path));
  }

  StoredPiece read_header(const std::string& path) const {
    StoredPiece stored;
    stored.shard = name;
    stored.dataset = path;
    Piece& piece = stored.piece;
    const auto plus = std::min(path.find('+'), path.size());  // "+n" marks a further piece of the same tensor
    piece.dataset = path.substr(0, plus);
    require(valid_dataset_name(piece.dataset) && path.find_first_not_of("0123456789", plus + 1) == std::string::npos,
            damaged, "{} has a name that is not allowed", where(path));
    const h5::Id dataset = open_dataset(path);
    const h5::Id type(H5Dget_type(dataset.get()));
    const h5::Id space(H5Dget_space(dataset.get()));
    const std::optional<DType> dtype = h5::dtype_of_type(type.get());
    require(dtype.has_value(), damaged, "{} has an unknown element type", where(path));
    piece.dtype = *dtype;
    piece.global_shape = read_integers(dataset.get(), "global_shape", where(path));
    piece.slice_start = read_integers(dataset.get(), "slice_start", where(path));
    piece.slice_shape = read_integers(dataset.get(), "slice_shape", where(path));
    piece.flat_begin = read_integer(dataset.get(), "flat_begin", where(path));
    piece.flat_end = read_integer(dataset.get(), "flat_end", where(path));
    stored.digest = read_digest(dataset.get(), where(path));
    const std::string problem = piece_error(piece);
    require(problem.empty(), damaged, "{}: {}", where(path), problem);
    require(H5Sget_simple_extent_ndims(space.get()) == 1 && H5Sget_simple_extent_npoints(space.get()) == piece.size(),
            damaged, "{} has not the {} elements of its range", where(path), piece.size());
    stored.offset = place_of(dataset.get(), piece.bytes(), bytes, where(path));
    return stored;
  }

  /// Walks a group by hard links only; `left` bounds the objects of the whole file, so that a cycle ends.
  void walk(const std::string& path, int depth, hsize_t& left, std::vector<StoredPiece>& found) const {
    require(depth <= max_depth, damaged, "{} has groups nested too deeply", label);
    const h5::Id group =
        h5::checked(H5Gopen2(file.get(), path.empty() ? "/" : path.c_str(), H5P_DEFAULT), damaged, "open", where(path));
    H5G_info_t info;
    h5::check(H5Gget_info(group.get(), &info), damaged, "read", where(path));
    require(info.nlinks <= left, damaged, "{} has too many objects", label);
    left -= info.nlinks;
    for (hsize_t i = 0; i < info.nlinks; ++i) {
      char text[1024];
      const ssize_t length =
          H5Lget_name_by_idx(group.get(), ".", H5_INDEX_NAME, H5_ITER_INC, i, text, sizeof text, H5P_DEFAULT);
      require(length > 0 && length < static_cast<ssize_t>(sizeof text), damaged, "{} has a broken link", where(path));
      const std::string child = path + "/" + text;
      H5L_info_t link;
      h5::check(H5Lget_info(group.get(), text, &link, H5P_DEFAULT), damaged, "read", where(child));
      require(link.type == H5L_TYPE_HARD, damaged, "{} refers to another place or file", where(child));
      const h5::Id object = h5::checked(H5Oopen(group.get(), text, H5P_DEFAULT), damaged, "open", where(child));
      const H5I_type_t kind = H5Iget_type(object.get());
      if (kind == H5I_GROUP) {
        walk(child, depth + 1, left, found);
      } else {
        require(kind == H5I_DATASET, damaged, "{} is neither group nor dataset", where(child));
        if (child != deck_dataset) found.push_back(read_header(child));
      }
    }
  }
};

ShardFile::ShardFile(const std::filesystem::path& folder, const std::string& name) : impl_(std::make_unique<Impl>()) {
  impl_->name = name;
  impl_->label = folder.filename().string() + "/" + name;
  const h5::Id access = h5::access_properties();
  impl_->file =
      h5::checked(H5Fopen((folder / name).c_str(), H5F_ACC_RDONLY, access.get()), damaged, "open", impl_->label);
  h5::check(H5Fget_filesize(impl_->file.get(), &impl_->bytes), damaged, "read", impl_->label);
}

ShardFile::~ShardFile() = default;

std::vector<StoredPiece> ShardFile::scan() const {
  std::vector<StoredPiece> found;
  hsize_t left = max_objects;
  impl_->walk("", 0, left, found);
  std::ranges::sort(found, {}, &StoredPiece::offset);
  for (std::size_t i = 1; i < found.size(); ++i) {
    const StoredPiece& before = found[i - 1];
    require(before.offset + before.piece.bytes() <= found[i].offset, damaged, "{} and {} share bytes",
            impl_->where(before.dataset), found[i].dataset);
  }
  return found;
}

std::string ShardFile::read_deck() const {
  const std::string where = impl_->where(deck_dataset);
  const h5::Id dataset = impl_->open_dataset(deck_dataset);
  const h5::Id type(H5Dget_type(dataset.get()));
  const h5::Id space(H5Dget_space(dataset.get()));
  const std::size_t length = H5Tget_size(type.get());
  require(H5Tget_class(type.get()) == H5T_STRING && H5Tis_variable_str(type.get()) == 0 &&
              length <= static_cast<std::size_t>(max_deck) && H5Sget_simple_extent_npoints(space.get()) == 1,
          damaged, "{} is not a text", where);
  place_of(dataset.get(), static_cast<std::int64_t>(length), impl_->bytes, where);
  std::string text(length, '\0');
  h5::check(H5Dread(dataset.get(), type.get(), H5S_ALL, H5S_ALL, H5P_DEFAULT, text.data()), ExitCode::io_error, "read",
            where);
  text.resize(text.find_last_not_of('\0') + 1);
  return text;
}

}  // namespace llmtrain
