# SPDX-License-Identifier: Apache-2.0
# Builds for aarch64 on another machine, as preset aarch64-cross does: with Debian's cross compiler, the packages that
# `scripts/setup.sh aarch64` unpacks, and qemu-user for what is run. PECIA_QEMU_CPU names the processor that it plays.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)

get_filename_component(source "${CMAKE_CURRENT_LIST_DIR}/../.." ABSOLUTE)
set(root ${source}/build/aarch64-sysroot/root)
if(NOT EXISTS ${root})
  message(FATAL_ERROR "there are no packages for aarch64 in ${root}; run scripts/setup.sh aarch64")
endif()
set(libraries ${root}/usr/lib/aarch64-linux-gnu)
set(CMAKE_FIND_ROOT_PATH ${root} /usr/aarch64-linux-gnu)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(ENV{PKG_CONFIG_SYSROOT_DIR} ${root})
set(ENV{PKG_CONFIG_LIBDIR} ${libraries}/pkgconfig:${root}/usr/share/pkgconfig)
set(CMAKE_EXE_LINKER_FLAGS_INIT "-Wl,-rpath-link,${libraries}")
set(CMAKE_SHARED_LINKER_FLAGS_INIT "-Wl,-rpath-link,${libraries}")

# For a build with CUDA: nvcc is this machine's, and makes code for the host by the cross compiler. CMake does not look
# for headers outside of the roots.
set(cuda ${source}/build/aarch64-cuda)
if(EXISTS ${cuda}/unpacked)
  set(CMAKE_CUDA_COMPILER ${cuda}/bin/nvcc)
  set(CMAKE_CUDA_HOST_COMPILER aarch64-linux-gnu-g++)
  list(APPEND CMAKE_FIND_ROOT_PATH ${cuda}/targets/aarch64-linux ${source}/build/cudnn-frontend ${source}/build/cutlass)
endif()

# The compiler wrappers of MPI and HDF5 that are found here know this machine's libraries.
set(MPI_SKIP_COMPILER_WRAPPER ON)
set(MPI_C_HEADER_DIR ${libraries}/openmpi/include CACHE PATH "")
set(MPI_C_LIB_NAMES mpi CACHE STRING "")
set(MPI_mpi_LIBRARY ${libraries}/libmpi.so CACHE FILEPATH "")
set(HDF5_C_COMPILER_EXECUTABLE OFF CACHE FILEPATH "")
set(HDF5_ROOT ${libraries}/hdf5/serial)

set(PECIA_QEMU_CPU max CACHE STRING "The processor that qemu plays, such as max or cortex-a72")
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64 -L ${root} -cpu ${PECIA_QEMU_CPU})
