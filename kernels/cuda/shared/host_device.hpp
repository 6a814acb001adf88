// SPDX-License-Identifier: Apache-2.0
#pragma once
/// PECIA_HD marks functions that a kernel and a test on the CPU share. They compile with nvcc for
/// both sides and with any C++ compiler for the host.

#ifdef __CUDACC__
#define PECIA_HD __host__ __device__ __forceinline__
#else
#define PECIA_HD inline
#endif
