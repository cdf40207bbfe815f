# SPDX-License-Identifier: Apache-2.0
# The CUDA module: where nvcc, nvrtc, cuBLASLt, cuDNN with its C++ frontend and NCCL are all found, adds llmtrain_cuda
# (libllmtrain_cuda.so beside the program); where one is missing, says which and goes on, or stops with LLMTRAIN_CUDA=ON.
set(LLMTRAIN_HAVE_CUDA OFF)
set(LLMTRAIN_CUDA_VERSION "none")
if(NOT LLMTRAIN_CUDA MATCHES "^(AUTO|ON|OFF|TRUE|FALSE|YES|NO|1|0)$")
  message(FATAL_ERROR "LLMTRAIN_CUDA is '${LLMTRAIN_CUDA}'; use AUTO, ON or OFF")
endif()
if(NOT LLMTRAIN_CUDNN MATCHES "^(AUTO|ON|OFF|TRUE|FALSE|YES|NO|1|0)$")
  message(FATAL_ERROR "LLMTRAIN_CUDNN is '${LLMTRAIN_CUDNN}'; use ON, AUTO or OFF")
endif()
if(NOT LLMTRAIN_CUDA STREQUAL "AUTO" AND NOT LLMTRAIN_CUDA)
  message(STATUS "CUDA module: off (LLMTRAIN_CUDA)")
  return()
endif()

# nvcc may be installed without being in PATH; must be settled before check_language looks.
if(NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX})
  find_program(LLMTRAIN_NVCC nvcc PATHS /usr/local/cuda/bin /opt/cuda/bin)
  if(LLMTRAIN_NVCC)
    set(CMAKE_CUDA_COMPILER ${LLMTRAIN_NVCC})
  endif()
endif()
include(CheckLanguage)
check_language(CUDA)

set(cuda_missing "")
if(CMAKE_CUDA_COMPILER)
  get_filename_component(cuda_bin ${CMAKE_CUDA_COMPILER} REALPATH)
  get_filename_component(cuda_bin ${cuda_bin} DIRECTORY)
  get_filename_component(cuda_root ${cuda_bin} DIRECTORY)
  set(cuda_hints ${cuda_root} ${cuda_root}/targets/x86_64-linux ${cuda_root}/targets/sbsa-linux)
  # 'library header' pairs: one that is not found puts its name in the list of what is missing.
  foreach(pair "cudart cuda_runtime_api.h" "cublasLt cublasLt.h" "cudnn cudnn.h" "nccl nccl.h" "nvrtc nvrtc.h")
    separate_arguments(pair)
    list(GET pair 0 library)
    list(GET pair 1 header)
    find_library(LLMTRAIN_LIB_${library} ${library} HINTS ${cuda_hints} PATH_SUFFIXES lib64 lib)
    find_path(LLMTRAIN_INC_${library} ${header} HINTS ${cuda_hints} PATH_SUFFIXES include)
    if(NOT LLMTRAIN_LIB_${library} OR NOT LLMTRAIN_INC_${library})
      list(APPEND cuda_missing ${library})
    endif()
  endforeach()
else()
  list(APPEND cuda_missing nvcc)
endif()

# cuDNN's C++ frontend is headers only: of a distribution, or of NVIDIA's wheel in site-packages (also of this environment).
# Attention without it takes many times as long, so that has to be asked for.
find_package(Python3 QUIET COMPONENTS Interpreter)
find_path(LLMTRAIN_INC_cudnn_frontend cudnn_frontend.h HINTS ${cuda_hints} ${Python3_SITELIB} ${Python3_SITEARCH}
  PATH_SUFFIXES include)
set(cudnn_frontend OFF)
if(LLMTRAIN_CUDNN AND LLMTRAIN_INC_cudnn_frontend)
  set(cudnn_frontend ON)
elseif(LLMTRAIN_CUDNN AND NOT LLMTRAIN_CUDNN STREQUAL "AUTO")
  list(APPEND cuda_missing "cudnn_frontend.h (pip install nvidia-cudnn-frontend, or \
-DLLMTRAIN_INC_cudnn_frontend=FOLDER, or -DLLMTRAIN_CUDNN=OFF for a module whose attention is many times slower)")
endif()

if(cuda_missing)
  list(JOIN cuda_missing ", " cuda_missing)
  if(LLMTRAIN_CUDA STREQUAL "AUTO")
    message(STATUS "CUDA module: not built; not found: ${cuda_missing}")
    return()
  endif()
  message(FATAL_ERROR "LLMTRAIN_CUDA is ON, but not found: ${cuda_missing}; install them, or use LLMTRAIN_CUDA=AUTO")
endif()

if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
  set(CMAKE_CUDA_ARCHITECTURES "80;90a" CACHE STRING "GPU generations that the CUDA module is built for")
endif()
enable_language(CUDA)
set(LLMTRAIN_HAVE_CUDA ON)
set(LLMTRAIN_CUDA_VERSION ${CMAKE_CUDA_COMPILER_VERSION})

file(GLOB_RECURSE CUDA_SOURCES CONFIGURE_DEPENDS
  ${PROJECT_SOURCE_DIR}/kernels/cuda/*.cu ${PROJECT_SOURCE_DIR}/kernels/cuda/*.cpp
  ${PROJECT_SOURCE_DIR}/src/backend/cuda/*.cpp)
add_library(llmtrain_cuda MODULE ${CUDA_SOURCES})
target_include_directories(llmtrain_cuda PRIVATE ${PROJECT_SOURCE_DIR}/kernels)
target_include_directories(llmtrain_cuda SYSTEM PRIVATE
  ${LLMTRAIN_INC_cudart} ${LLMTRAIN_INC_cublasLt} ${LLMTRAIN_INC_cudnn} ${LLMTRAIN_INC_nccl})
if(cudnn_frontend)
  target_include_directories(llmtrain_cuda SYSTEM PRIVATE ${LLMTRAIN_INC_cudnn_frontend})
  target_compile_definitions(llmtrain_cuda PRIVATE LLMTRAIN_CUDNN_FRONTEND)
endif()
# Symbols of the seam stay undefined here: the program that opens the module has them.
target_link_libraries(llmtrain_cuda PRIVATE llmtrain_options fmt::fmt
  ${LLMTRAIN_LIB_cudart} ${LLMTRAIN_LIB_cublasLt} ${LLMTRAIN_LIB_cudnn} ${LLMTRAIN_LIB_nccl}
  ${LLMTRAIN_LIB_nvrtc})  # cuDNN's frontend compiles with it
# CMake before 3.25.2 does not know that nvcc 12 and later speak C++20, so the flag is given by hand and
# CMAKE_CUDA_STANDARD stays unset. Contraction is off as in the C++ files: init_normal must give the CPU's bits.
set(cuda_flags -std=c++20 --fmad=false --expt-relaxed-constexpr -Xcompiler=-Wall,-Wextra
  -DFMT_USE_CONSTEXPR=1)  # fmt turns constexpr off under nvcc, but not consteval, which needs it
if(LLMTRAIN_WERROR)
  list(APPEND cuda_flags -Werror=all-warnings)
endif()
target_compile_options(llmtrain_cuda PRIVATE "$<$<COMPILE_LANGUAGE:CUDA>:${cuda_flags}>")
set_target_properties(llmtrain_cuda PROPERTIES CUDA_STANDARD_REQUIRED OFF LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR})
if(NOT cudnn_frontend)
  message(WARNING "CUDA module: attention runs in plain kernels, many times slower than cuDNN (LLMTRAIN_CUDNN is "
    "${LLMTRAIN_CUDNN})")
endif()
message(STATUS "CUDA module: CUDA ${LLMTRAIN_CUDA_VERSION}, for ${CMAKE_CUDA_ARCHITECTURES}")
