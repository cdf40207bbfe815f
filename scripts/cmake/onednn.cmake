# SPDX-License-Identifier: Apache-2.0
# Finds oneDNN: the target DNNL::dnnl and dnnl_VERSION. Done by hand because the package file that Debian ships asks for
# OpenCL's headers, which nothing here uses and its -dev package does not bring.
find_path(DNNL_INCLUDE_DIR oneapi/dnnl/dnnl.hpp REQUIRED)
find_library(DNNL_LIBRARY dnnl REQUIRED)
foreach(part MAJOR MINOR PATCH)
  file(STRINGS ${DNNL_INCLUDE_DIR}/oneapi/dnnl/dnnl_version.h line REGEX "#define DNNL_VERSION_${part} " LIMIT_COUNT 1)
  string(REGEX MATCH "[0-9]+" dnnl_${part} "${line}")
endforeach()
set(dnnl_VERSION ${dnnl_MAJOR}.${dnnl_MINOR}.${dnnl_PATCH})
add_library(DNNL::dnnl UNKNOWN IMPORTED)
set_target_properties(DNNL::dnnl PROPERTIES
  IMPORTED_LOCATION ${DNNL_LIBRARY} INTERFACE_INCLUDE_DIRECTORIES ${DNNL_INCLUDE_DIR})
message(STATUS "Found oneDNN: ${DNNL_LIBRARY} (found version ${dnnl_VERSION})")
