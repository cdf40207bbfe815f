// SPDX-License-Identifier: Apache-2.0
/// H5Writer over the C library: object times off, groups made in the order of first use, every return checked.
#include "llmtrain/checkpoint/h5_writer.hpp"

#include <cstring>
#include <limits>
#include <set>

#include "h5_driver.hpp"
#include "h5_handle.hpp"
#include "llmtrain/base/error.hpp"
#include "llmtrain/base/files.hpp"

namespace llmtrain {

namespace {

std::vector<hsize_t> extents(std::span<const std::int64_t> shape) {
  std::vector<hsize_t> result;
  for (const std::int64_t extent : shape) result.push_back(static_cast<hsize_t>(extent));
  return result;
}

h5::Id space_of(std::span<const std::int64_t> shape) {
  const std::vector<hsize_t> dims = extents(shape);
  h5::Id space(dims.empty() ? H5Screate(H5S_SCALAR)
                            : H5Screate_simple(static_cast<int>(dims.size()), dims.data(), nullptr));
  LLMTRAIN_CHECK(space.valid());
  return space;
}

h5::Id text_type(std::size_t length) {
  h5::Id type(H5Tcopy(H5T_C_S1));
  LLMTRAIN_CHECK(H5Tset_size(type.get(), length > 0 ? length : 1) >= 0);
  LLMTRAIN_CHECK(H5Tset_strpad(type.get(), H5T_STR_NULLPAD) >= 0);
  LLMTRAIN_CHECK(H5Tset_cset(type.get(), H5T_CSET_UTF8) >= 0);
  return type;
}

h5::Id creation_properties(hid_t kind) {
  h5::Id list(H5Pcreate(kind));
  LLMTRAIN_CHECK(list.valid() && H5Pset_obj_track_times(list.get(), false) >= 0);
  return list;
}

/// What a hole in a virtual dataset reads as: a value that no run would take for a weight.
void set_hole(const h5::Id& properties, DType dtype) {
  h5::Id type(H5Tcopy(H5T_NATIVE_DOUBLE));
  double value = std::numeric_limits<double>::quiet_NaN();
  // The library converts the double's NaN to any float type, but not to the lowest integer.
  if (dtype == DType::int64 || dtype == DType::int32) {
    const auto lowest = dtype == DType::int64 ? std::numeric_limits<std::int64_t>::min()
                                              : std::int64_t{std::numeric_limits<std::int32_t>::min()};
    LLMTRAIN_CHECK(H5Pset_fill_value(properties.get(), H5T_NATIVE_INT64, &lowest) >= 0);
  } else if (dtype != DType::uint8) {
    LLMTRAIN_CHECK(H5Pset_fill_value(properties.get(), type.get(), &value) >= 0);
  }
}

}  // namespace

struct H5Writer::Impl {
  std::filesystem::path path;
  h5::WriteRecord record;  // outlives the file
  h5::Id file;
  std::set<std::string> groups;

  std::string where(const std::string& object) const { return path.string() + object; }

  /// Throws what the driver noted; the library itself knows nothing of it.
  void check_written(const std::string& object = "") const {
    require(record.failure.empty(), ExitCode::io_error, "cannot write {}: {}", where(object), record.failure);
  }

  void make_groups(const std::string& dataset) {
    for (auto end = dataset.find('/', 1); end != std::string::npos; end = dataset.find('/', end + 1)) {
      const std::string group = dataset.substr(0, end);
      if (!groups.insert(group).second) continue;
      const h5::Id properties = creation_properties(H5P_GROUP_CREATE);
      h5::checked(H5Gcreate2(file.get(), group.c_str(), H5P_DEFAULT, properties.get(), H5P_DEFAULT), ExitCode::io_error,
                  "make group", where(group));
    }
  }

  h5::Id make(const std::string& dataset, const h5::Id& type, const h5::Id& space, const h5::Id& properties) {
    make_groups(dataset);
    return h5::checked(
        H5Dcreate2(file.get(), dataset.c_str(), type.get(), space.get(), H5P_DEFAULT, properties.get(), H5P_DEFAULT),
        ExitCode::io_error, "make dataset", where(dataset));
  }

  /// Returns where in the file the data lies.
  std::int64_t put(const std::string& dataset, const h5::Id& type, const h5::Id& space, const void* data) {
    const h5::Id properties = creation_properties(H5P_DATASET_CREATE);
    LLMTRAIN_CHECK(H5Pset_layout(properties.get(), H5D_CONTIGUOUS) >= 0);
    LLMTRAIN_CHECK(H5Pset_fill_time(properties.get(), H5D_FILL_TIME_NEVER) >= 0);
    const h5::Id made = make(dataset, type, space, properties);
    h5::check(H5Dwrite(made.get(), type.get(), H5S_ALL, H5S_ALL, H5P_DEFAULT, data), ExitCode::io_error, "write",
              where(dataset));
    check_written(dataset);
    return static_cast<std::int64_t>(H5Dget_offset(made.get()));
  }

  void put_attribute(const std::string& object, const std::string& name, const h5::Id& type, const h5::Id& space,
                     const void* data) {
    const h5::Id owner =
        h5::checked(H5Oopen(file.get(), object.c_str(), H5P_DEFAULT), ExitCode::io_error, "open", where(object));
    const h5::Id made =
        h5::checked(H5Acreate2(owner.get(), name.c_str(), type.get(), space.get(), H5P_DEFAULT, H5P_DEFAULT),
                    ExitCode::io_error, "make an attribute of", where(object));
    h5::check(H5Awrite(made.get(), type.get(), data), ExitCode::io_error, "write an attribute of", where(object));
  }
};

H5Writer::H5Writer(const std::filesystem::path& path) : impl_(std::make_unique<Impl>()) {
  impl_->path = path;
  const h5::Id access = h5::writing_properties(impl_->record);
  const h5::Id creation = creation_properties(H5P_FILE_CREATE);
  const hid_t file = H5Fcreate(path.c_str(), H5F_ACC_TRUNC, creation.get(), access.get());
  require(file >= 0, ExitCode::cannot_create, "cannot create {}: {}", path.string(),
          impl_->record.failure.empty() ? h5::reason() : impl_->record.failure);
  impl_->file = h5::Id(file);
}

H5Writer::~H5Writer() = default;

std::int64_t H5Writer::write(const std::string& dataset, DType dtype, std::span<const std::int64_t> shape,
                             const void* data) {
  return impl_->put(dataset, h5::type_of(dtype), space_of(shape), data);
}

std::int64_t H5Writer::write_text(const std::string& dataset, const std::string& text) {
  return impl_->put(dataset, text_type(text.size()), space_of({}), text.c_str());
}

void H5Writer::write_virtual(const std::string& dataset, DType dtype, std::span<const std::int64_t> shape,
                             std::span<const VirtualSource> sources) {
  const h5::Id properties = creation_properties(H5P_DATASET_CREATE);
  set_hole(properties, dtype);
  const h5::Id space = space_of(shape);
  for (const VirtualSource& source : sources) {
    std::int64_t elements = 1;
    for (const std::int64_t extent : source.shape) elements *= extent;
    const h5::Id from = space_of(std::span(&source.length, 1));
    const auto begin = static_cast<hsize_t>(source.begin);
    const auto count = static_cast<hsize_t>(elements);
    LLMTRAIN_CHECK(H5Sselect_hyperslab(from.get(), H5S_SELECT_SET, &begin, nullptr, &count, nullptr) >= 0);
    LLMTRAIN_CHECK(H5Sselect_hyperslab(space.get(), H5S_SELECT_SET, extents(source.start).data(), nullptr,
                                       extents(source.shape).data(), nullptr) >= 0);
    h5::check(H5Pset_virtual(properties.get(), space.get(), source.file.c_str(), source.dataset.c_str(), from.get()),
              ExitCode::io_error, "describe", impl_->where(dataset));
  }
  LLMTRAIN_CHECK(H5Sselect_all(space.get()) >= 0);
  impl_->make(dataset, h5::type_of(dtype), space, properties);
}

void H5Writer::attribute(const std::string& object, const std::string& name, std::int64_t value) {
  impl_->put_attribute(object, name, h5::type_of(DType::int64), space_of({}), &value);
}

void H5Writer::attribute(const std::string& object, const std::string& name, std::span<const std::int64_t> values) {
  const auto count = static_cast<std::int64_t>(values.size());
  impl_->put_attribute(object, name, h5::type_of(DType::int64), space_of(std::span(&count, 1)), values.data());
}

void H5Writer::attribute(const std::string& object, const std::string& name, const std::string& text) {
  impl_->put_attribute(object, name, text_type(text.size()), space_of({}), text.c_str());
}

void H5Writer::close() {
  const std::string where = impl_->path.string();
  h5::check(H5Fclose(impl_->file.release()), ExitCode::io_error, "close", where);
  impl_->check_written();
  sync_path(impl_->path);
}

FileFacts H5Writer::facts() const { return impl_->record.image.facts(); }

}  // namespace llmtrain
