// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Functions that a kernel and a test on the CPU share: marked PECIA_HD they compile with nvcc for
/// both sides and with any C++ compiler for the host.

#ifdef __CUDACC__
#define PECIA_HD __host__ __device__ __forceinline__
#else
#define PECIA_HD inline
#endif
