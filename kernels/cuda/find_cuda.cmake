# SPDX-License-Identifier: Apache-2.0
# What a build with PECIA_CUDA needs beside the rest: nvcc, cuBLASLt, cuDNN, NCCL; or an error that says where to
# get it. Included by the root, as a language has to be enabled there.
set(PECIA_CUDA_REMEDY "Configure without CUDA (--preset release), or see kernels/cuda.md for what the CUDA backend needs.")

find_program(PECIA_NVCC nvcc HINTS $ENV{CUDACXX} $ENV{CUDA_HOME}/bin $ENV{CUDA_PATH}/bin /usr/local/cuda/bin)
if(NOT PECIA_NVCC)
  message(FATAL_ERROR "PECIA_CUDA is ON, but nvcc was not found. Load the CUDA module, or put nvcc of CUDA 12.4 or "
                      "newer on the PATH or its folder into CUDA_HOME. ${PECIA_CUDA_REMEDY}")
endif()
if(NOT CMAKE_CUDA_COMPILER)
  if(CMAKE_CROSSCOMPILING)
    message(FATAL_ERROR "PECIA_CUDA is ON, but there are no CUDA libraries for ${CMAKE_SYSTEM_PROCESSOR}. Run "
                        "scripts/setup.sh aarch64-cuda. ${PECIA_CUDA_REMEDY}")
  endif()
  set(CMAKE_CUDA_COMPILER ${PECIA_NVCC})
endif()
# nvcc before 12.8 does not know the GPUs after 9.0.
execute_process(COMMAND ${PECIA_NVCC} --version OUTPUT_VARIABLE nvcc_version ERROR_QUIET)
string(REGEX MATCH "release ([0-9.]+)" nvcc_version "${nvcc_version}")
if(CMAKE_MATCH_1 VERSION_LESS 12.8 AND PECIA_CUDA_ARCHITECTURES STREQUAL default_architectures)
  set(PECIA_CUDA_ARCHITECTURES "80;90a")
  message(STATUS "nvcc ${CMAKE_MATCH_1} makes no code for GPUs after 9.0, so the build is for ${PECIA_CUDA_ARCHITECTURES}")
endif()
# Machine code for the GPUs that are named, which also runs on later ones of the same generation (80 on 8.6 and 8.9).
# The last one's portable code (PTX) lets the driver compile for generations that are not known yet. Code for one kind of
# GPU alone, such as 90a, cannot be portable.
list(TRANSFORM PECIA_CUDA_ARCHITECTURES APPEND "-real" OUTPUT_VARIABLE CMAKE_CUDA_ARCHITECTURES)
list(GET PECIA_CUDA_ARCHITECTURES -1 last_architecture)
if(last_architecture MATCHES "^[0-9]+$")
  list(APPEND CMAKE_CUDA_ARCHITECTURES ${last_architecture}-virtual)
endif()
if(CCACHE AND NOT CMAKE_CUDA_COMPILER_LAUNCHER)
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${CCACHE})
endif()
enable_language(CUDA)
# The standard is CMAKE_CXX_STANDARD's; CMake before 3.26 does not know how nvcc calls C++20.
if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
endif()
find_package(CUDAToolkit 12.4 REQUIRED)

# pecia_find_cuda_library(NAME library header package): imports pecia::NAME.
function(pecia_find_cuda_library name library header package)
  string(TOUPPER ${name} upper)
  find_library(PECIA_${upper}_LIBRARY NAMES ${library} HINTS ${CUDAToolkit_LIBRARY_DIR} $ENV{${upper}_HOME}/lib
                                                             $ENV{${upper}_HOME}/lib64)
  find_path(PECIA_${upper}_INCLUDE ${header} HINTS ${CUDAToolkit_INCLUDE_DIRS} $ENV{${upper}_HOME}/include)
  if(NOT PECIA_${upper}_LIBRARY OR NOT PECIA_${upper}_INCLUDE)
    message(FATAL_ERROR "PECIA_CUDA is ON, but lib${library}.so or ${header} was not found. Load the module or install "
                        "${package}, or set ${upper}_HOME to the folder that holds its lib and include. "
                        "${PECIA_CUDA_REMEDY}")
  endif()
  add_library(pecia::${name} UNKNOWN IMPORTED)
  set_target_properties(pecia::${name} PROPERTIES IMPORTED_LOCATION ${PECIA_${upper}_LIBRARY}
                                                  INTERFACE_INCLUDE_DIRECTORIES ${PECIA_${upper}_INCLUDE})
endfunction()
pecia_find_cuda_library(cudnn cudnn cudnn.h "cuDNN 9 (libcudnn9-dev-cuda-13)")
pecia_find_cuda_library(nccl nccl nccl.h "NCCL 2 (libnccl-dev)")

# The headers of cudnn-frontend, of which attention by cuDNN is made; without them our own kernels do all of it.
find_path(PECIA_CUDNN_FRONTEND_INCLUDE cudnn_frontend.h
          HINTS $ENV{CUDNN_FRONTEND_HOME}/include ${PROJECT_SOURCE_DIR}/build/cudnn-frontend/include)
if(NOT PECIA_CUDNN_FRONTEND_INCLUDE)
  message(STATUS "cudnn_frontend.h was not found: prefill attention will not use cuDNN. scripts/setup.sh cuda gets it, "
                 "or set CUDNN_FRONTEND_HOME to the folder that holds its include")
endif()

# The headers of CUTLASS, of which grouped products of experts are made for compute capability 9.0; without them our own
# kernels do all of these.
find_path(PECIA_CUTLASS_INCLUDE cutlass/cutlass.h
          HINTS $ENV{CUTLASS_HOME}/include ${PROJECT_SOURCE_DIR}/build/cutlass/include)
if(NOT "90a" IN_LIST PECIA_CUDA_ARCHITECTURES)
  message(STATUS "The build is not for 90a: products of experts will not use CUTLASS")
elseif(NOT PECIA_CUTLASS_INCLUDE)
  message(STATUS "cutlass/cutlass.h was not found: products of experts will not use CUTLASS. scripts/setup.sh cuda gets "
                 "it, or set CUTLASS_HOME to the folder that holds its include")
endif()
