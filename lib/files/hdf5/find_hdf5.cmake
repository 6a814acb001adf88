# SPDX-License-Identifier: Apache-2.0
# HDF5 of the system or of a cluster's module, serial or parallel. Modules name theirs by HDF5_ROOT, which CMake reads
# itself, by HDF5_DIR or HDF5_HOME, or by h5cc or h5pcc on PATH.
foreach(variable HDF5_DIR HDF5_HOME)
  if(NOT HDF5_ROOT AND NOT DEFINED ENV{HDF5_ROOT} AND EXISTS "$ENV{${variable}}/include/hdf5.h")
    set(HDF5_ROOT $ENV{${variable}})
  endif()
endforeach()
find_package(HDF5 REQUIRED COMPONENTS C)
# Its header then includes MPI's; nothing here uses more of it than the serial one has.
if(HDF5_IS_PARALLEL)
  target_link_libraries(HDF5::HDF5 INTERFACE MPI::MPI_C)
endif()
