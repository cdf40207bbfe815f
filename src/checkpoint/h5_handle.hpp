// SPDX-License-Identifier: Apache-2.0
/// HDF5 handles as RAII objects, checked calls, and the file types of our element types.
#pragma once

#include <hdf5.h>

#include <filesystem>
#include <optional>
#include <string>
#include <utility>

#include "llmtrain/base/dtype.hpp"
#include "llmtrain/base/error.hpp"

namespace llmtrain::h5 {

/// An HDF5 identifier of any kind, released at the end of its scope.
class Id {
 public:
  Id() = default;
  explicit Id(hid_t value) : value_(value) {}
  Id(Id&& other) noexcept : value_(std::exchange(other.value_, H5I_INVALID_HID)) {}
  Id& operator=(Id&& other) noexcept {
    std::swap(value_, other.value_);
    return *this;
  }
  ~Id() {
    if (value_ >= 0) H5Idec_ref(value_);
  }
  hid_t get() const { return value_; }
  bool valid() const { return value_ >= 0; }
  hid_t release() { return std::exchange(value_, H5I_INVALID_HID); }

 private:
  hid_t value_ = H5I_INVALID_HID;
};

/// Silences the library's own printing and forbids it to load filter plug-ins; cheap to repeat.
void prepare();

/// The innermost reason of the library's last failure.
std::string reason();

/// Throws Error(code, "cannot `action` `where`: reason") for a negative result.
void check(herr_t result, ExitCode code, const char* action, const std::string& where);

/// The same for a new identifier.
Id checked(hid_t value, ExitCode code, const char* action, const std::string& where);

/// File type (little-endian) of an element type; it is the memory type too.
Id type_of(DType dtype);

/// The element type that a file type stands for.
std::optional<DType> dtype_of_type(hid_t type);

/// Access properties: no file locks (many parallel file systems have none), formats that HDF5 1.10 can read.
Id access_properties();

}  // namespace llmtrain::h5
