// SPDX-License-Identifier: Apache-2.0
/// The driver's callbacks over POSIX calls.
#include "h5_driver.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <span>

#include "llmtrain/base/files.hpp"
#include "llmtrain/base/inject.hpp"

#if H5_VERSION_GE(1, 13, 0)
#include <H5FDdevelop.h>
#endif

namespace llmtrain::h5 {

namespace {

constexpr std::size_t large = std::size_t{1} << 20;  // bytes; the library has buffers for smaller arrays
constexpr haddr_t max_address = (haddr_t{1} << 62) - 1;

/// What the access properties carry to open_file.
struct DriverInfo {
  WriteRecord* record;
};

/// An open file; the library sees its first member.
struct DriverFile {
  H5FD_t base;
  int descriptor;
  haddr_t end_of_addresses;
  haddr_t end_of_file;
  WriteRecord* record;
};

DriverFile& self(H5FD_t* file) { return *reinterpret_cast<DriverFile*>(file); }
const DriverFile& self(const H5FD_t* file) { return *reinterpret_cast<const DriverFile*>(file); }

void note(DriverFile& file, int error) {
  if (file.record->failure.empty()) file.record->failure = std::strerror(error);
}

H5FD_t* open_file(const char* name, unsigned flags, hid_t properties, haddr_t) {
  const auto* info = static_cast<const DriverInfo*>(H5Pget_driver_info(properties));
  if (info == nullptr) return nullptr;
  int mode = (flags & H5F_ACC_RDWR) != 0 ? O_RDWR : O_RDONLY;
  if ((flags & H5F_ACC_TRUNC) != 0) mode |= O_TRUNC;
  if ((flags & H5F_ACC_CREAT) != 0) mode |= O_CREAT;
  const int descriptor = ::open(name, mode | O_CLOEXEC, 0666);
  if (descriptor < 0) {
    info->record->failure = std::strerror(errno);
    return nullptr;
  }
  const off_t end = ::lseek(descriptor, 0, SEEK_END);
  auto file = std::make_unique<DriverFile>();
  file->descriptor = descriptor;
  file->end_of_file = static_cast<haddr_t>(std::max<off_t>(end, 0));
  file->record = info->record;
  return &file.release()->base;
}

herr_t close_file(H5FD_t* base) {
  const std::unique_ptr<DriverFile> file(&self(base));
  if (::close(file->descriptor) != 0) note(*file, errno);
  return 0;
}

herr_t query(const H5FD_t*, unsigned long* flags) {
  if (flags != nullptr) {
    *flags = H5FD_FEAT_AGGREGATE_METADATA | H5FD_FEAT_ACCUMULATE_METADATA | H5FD_FEAT_DATA_SIEVE |
             H5FD_FEAT_AGGREGATE_SMALLDATA | H5FD_FEAT_DEFAULT_VFD_COMPATIBLE;
  }
  return 0;
}

haddr_t get_eoa(const H5FD_t* file, H5FD_mem_t) { return self(file).end_of_addresses; }

herr_t set_eoa(H5FD_t* file, H5FD_mem_t, haddr_t address) {
  self(file).end_of_addresses = address;
  return 0;
}

haddr_t get_eof(const H5FD_t* file, H5FD_mem_t) { return self(file).end_of_file; }

/// Bytes beyond the end of the file, and after a failure, are zeros.
herr_t read_bytes(H5FD_t* base, H5FD_mem_t, hid_t, haddr_t address, size_t size, void* buffer) {
  DriverFile& file = self(base);
  const std::span bytes(static_cast<std::byte*>(buffer), size);
  const ReadResult got = read_full_at(file.descriptor, static_cast<std::int64_t>(address), bytes);
  if (got.error != 0) note(file, got.error);
  std::ranges::fill(bytes.subspan(static_cast<std::size_t>(got.bytes)), std::byte{});
  return 0;
}

herr_t write_bytes(H5FD_t* base, H5FD_mem_t type, hid_t, haddr_t address, size_t size, const void* buffer) {
  DriverFile& file = self(base);
  file.record->image.write(address, buffer, size, type == H5FD_MEM_DRAW && size >= large);
  if (fault_at("save.write")) {
    note(file, ENOSPC);
  }
  if (file.record->failure.empty()) {
    const std::span bytes(static_cast<const std::byte*>(buffer), size);
    const int error = write_all_at(file.descriptor, static_cast<std::int64_t>(address), bytes);
    if (error != 0) note(file, error);
  }
  file.end_of_file = std::max(file.end_of_file, address + size);
  return 0;
}

/// The library calls this at the end, to give the file the length of its addresses.
herr_t truncate_file(H5FD_t* base, hid_t, hbool_t) {
  DriverFile& file = self(base);
  if (file.end_of_addresses == file.end_of_file) return 0;
  if (file.record->failure.empty() && ::ftruncate(file.descriptor, static_cast<off_t>(file.end_of_addresses)) != 0) {
    note(file, errno);
  }
  file.end_of_file = file.end_of_addresses;
  file.record->image.resize(file.end_of_file);
  return 0;
}

H5FD_class_t make_class() {
  H5FD_class_t driver{};
#if H5_VERSION_GE(1, 13, 0)
  driver.version = H5FD_CLASS_VERSION;
  driver.value = static_cast<H5FD_class_value_t>(600);  // of the range for drivers of programs
#endif
  driver.name = "llmtrain";
  driver.maxaddr = max_address;
  driver.fc_degree = H5F_CLOSE_STRONG;
  driver.fapl_size = sizeof(DriverInfo);
  driver.open = open_file;
  driver.close = close_file;
  driver.query = query;
  driver.get_eoa = get_eoa;
  driver.set_eoa = set_eoa;
  driver.get_eof = get_eof;
  driver.read = read_bytes;
  driver.write = write_bytes;
  driver.truncate = truncate_file;
  const H5FD_mem_t map[] = H5FD_FLMAP_DICHOTOMY;
  std::copy(std::begin(map), std::end(map), driver.fl_map);
  return driver;
}

}  // namespace

Id writing_properties(WriteRecord& record) {
  Id list = access_properties();
  static const H5FD_class_t driver_class = make_class();
  static const hid_t driver = H5FDregister(&driver_class);
  const DriverInfo info{&record};
  LLMTRAIN_CHECK(driver >= 0 && H5Pset_driver(list.get(), driver, &info) >= 0);
  return list;
}

}  // namespace llmtrain::h5
