# SPDX-License-Identifier: Apache-2.0
# What the program says about its own build. Included by CMakeLists.txt it adds the target llmtrain_build_info, which runs
# this same file as a script at every build: that writes build_info.cpp, and only when something in it has changed, so a
# moved HEAD recompiles one small file.
if(CMAKE_SCRIPT_MODE_FILE)
  set(LLMTRAIN_GIT_ID "unknown")
  execute_process(COMMAND git -C ${LLMTRAIN_SOURCE_DIR} describe --always --dirty --abbrev=12 --match=v*
    OUTPUT_VARIABLE git_id ERROR_QUIET RESULT_VARIABLE git_status OUTPUT_STRIP_TRAILING_WHITESPACE)
  if(git_status EQUAL 0)
    set(LLMTRAIN_GIT_ID ${git_id})
  endif()
  configure_file(${LLMTRAIN_SOURCE_DIR}/scripts/cmake/build_info.cpp.in ${LLMTRAIN_OUTPUT} @ONLY)
  return()
endif()

string(REGEX REPLACE ",.*" "" LLMTRAIN_MPI_LIBRARY "${MPI_CXX_LIBRARY_VERSION_STRING}")
string(STRIP "${LLMTRAIN_MPI_LIBRARY}" LLMTRAIN_MPI_LIBRARY)
if(NOT LLMTRAIN_MPI_LIBRARY)
  set(LLMTRAIN_MPI_LIBRARY "MPI ${MPI_CXX_VERSION}")
endif()

set(LLMTRAIN_BUILD_INFO_SOURCE ${PROJECT_BINARY_DIR}/build_info.cpp)
add_custom_target(llmtrain_build_info
  COMMAND ${CMAKE_COMMAND}
    -DLLMTRAIN_SOURCE_DIR=${PROJECT_SOURCE_DIR} -DLLMTRAIN_OUTPUT=${LLMTRAIN_BUILD_INFO_SOURCE}
    -DLLMTRAIN_VERSION=${PROJECT_VERSION}
    "-DLLMTRAIN_COMPILER=${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION}"
    "-DLLMTRAIN_BUILD_TYPE=${CMAKE_BUILD_TYPE}" "-DLLMTRAIN_ARCH=${LLMTRAIN_ARCH}"
    "-DLLMTRAIN_SANITIZE=${LLMTRAIN_SANITIZE}" "-DLLMTRAIN_MPI_LIBRARY=${LLMTRAIN_MPI_LIBRARY}"
    -DLLMTRAIN_HDF5_VERSION=${HDF5_VERSION} -DLLMTRAIN_ONEDNN_VERSION=${dnnl_VERSION}
    -DLLMTRAIN_CUDA_VERSION=${LLMTRAIN_CUDA_VERSION}
    -P ${PROJECT_SOURCE_DIR}/scripts/cmake/build_info.cmake
  BYPRODUCTS ${LLMTRAIN_BUILD_INFO_SOURCE}
  COMMENT "Noting the commit in build_info.cpp" VERBATIM)
