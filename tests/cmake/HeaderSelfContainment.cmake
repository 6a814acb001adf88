# SPDX-License-Identifier: Apache-2.0
# Target check_headers: compiles each header of lib/ and kernels/ alone, twice in one source, so that each
# includes what it uses and is guarded. Not headers of kernels/cuda, which need nvcc, nor of another architecture, nor
# *-inl.hpp, which Highway compiles once per instruction set.
file(GLOB_RECURSE headers CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR}
     ${PROJECT_SOURCE_DIR}/lib/*.hpp ${PROJECT_SOURCE_DIR}/kernels/*.hpp)
set(other_architecture arm)
if(PECIA_ARCHITECTURE STREQUAL "arm")
  set(other_architecture x86)
endif()
list(FILTER headers EXCLUDE REGEX "^kernels/cuda/|^kernels/cpu/${other_architecture}/|-inl\\.hpp$")

set(sources "")
foreach(header ${headers})
  set(source ${PROJECT_BINARY_DIR}/check_headers/${header}.cpp)
  file(CONFIGURE OUTPUT ${source} CONTENT "#include \"${header}\"\n#include \"${header}\"\n")
  list(APPEND sources ${source})
endforeach()

add_library(check_headers OBJECT EXCLUDE_FROM_ALL ${sources})
target_link_libraries(check_headers PRIVATE
  pecia_options fmt::fmt spdlog::spdlog nlohmann_json::nlohmann_json yaml-cpp MPI::MPI_C HDF5::HDF5
  PkgConfig::HWLOC PkgConfig::HWY)
