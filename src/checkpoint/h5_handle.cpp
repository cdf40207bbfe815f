// SPDX-License-Identifier: Apache-2.0
/// The library's settings, its error stack as one line, and the float formats that it does not name.
#include "h5_handle.hpp"

#include <array>
#include <string_view>

namespace llmtrain::h5 {

namespace {

constexpr std::array all_types = {DType::fp64,     DType::fp32,  DType::bf16,  DType::fp16, DType::fp8_e4m3,
                                  DType::fp8_e5m2, DType::int64, DType::int32, DType::uint8};

/// A float of 1 sign bit, `exponent` and `mantissa` bits; readers convert it to a float that they know.
Id small_float(std::size_t exponent, std::size_t mantissa, std::size_t bias) {
  const std::size_t bits = 1 + exponent + mantissa;
  Id type(H5Tcopy(H5T_IEEE_F32LE));
  LLMTRAIN_CHECK(type.valid());
  LLMTRAIN_CHECK(H5Tset_fields(type.get(), bits - 1, mantissa, exponent, 0, mantissa) >= 0);
  LLMTRAIN_CHECK(H5Tset_precision(type.get(), bits) >= 0);
  LLMTRAIN_CHECK(H5Tset_size(type.get(), bits / 8) >= 0);
  LLMTRAIN_CHECK(H5Tset_ebias(type.get(), bias) >= 0);
  return type;
}

herr_t keep_first(unsigned, const H5E_error2_t* error, void* result) {
  auto& text = *static_cast<std::string*>(result);
  if (text.empty() && error->desc != nullptr) text = error->desc;
  return 0;
}

}  // namespace

void prepare() {
  // Files are closed by their owners; the library's own clean-up at exit runs after them and finds nothing to do.
  static const herr_t no_clean_up = H5dont_atexit();
  static_cast<void>(no_clean_up);
  H5open();
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
  H5PLset_loading_state(0);
}

std::string reason() {
  std::string text;
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, keep_first, &text);
  // A failed system call comes as a long line with a clock in it; its own message says enough.
  constexpr std::string_view mark = "error message = '";
  if (const auto begin = text.find(mark); begin != std::string::npos) {
    const auto from = begin + mark.size();
    return text.substr(from, text.find('\'', from) - from);
  }
  return text.empty() ? "HDF5 gives no reason" : text;
}

void check(herr_t result, ExitCode code, const char* action, const std::string& where) {
  if (result < 0) fail(code, "cannot {} {}: {}", action, where, reason());
}

Id checked(hid_t value, ExitCode code, const char* action, const std::string& where) {
  if (value < 0) fail(code, "cannot {} {}: {}", action, where, reason());
  return Id(value);
}

Id type_of(DType dtype) {
  switch (dtype) {
    case DType::fp64: return Id(H5Tcopy(H5T_IEEE_F64LE));
    case DType::fp32: return Id(H5Tcopy(H5T_IEEE_F32LE));
    case DType::bf16: return small_float(8, 7, 127);
    case DType::fp16: return small_float(5, 10, 15);
    case DType::fp8_e4m3: return small_float(4, 3, 7);
    case DType::fp8_e5m2: return small_float(5, 2, 15);
    case DType::int64: return Id(H5Tcopy(H5T_STD_I64LE));
    case DType::int32: return Id(H5Tcopy(H5T_STD_I32LE));
    case DType::uint8: return Id(H5Tcopy(H5T_STD_U8LE));
  }
  return Id();
}

std::optional<DType> dtype_of_type(hid_t type) {
  for (const DType dtype : all_types) {
    if (H5Tequal(type, type_of(dtype).get()) > 0) return dtype;
  }
  return std::nullopt;
}

Id access_properties() {
  prepare();
  Id list(H5Pcreate(H5P_FILE_ACCESS));
  LLMTRAIN_CHECK(list.valid());
  LLMTRAIN_CHECK(H5Pset_libver_bounds(list.get(), H5F_LIBVER_EARLIEST, H5F_LIBVER_V110) >= 0);
#if H5_VERSION_GE(1, 10, 7)
  LLMTRAIN_CHECK(H5Pset_file_locking(list.get(), false, true) >= 0);
#endif
  return list;
}

}  // namespace llmtrain::h5
