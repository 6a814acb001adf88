// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Every CUDA call goes through one of these.

#include <cuda_runtime_api.h>

#include <string>
#include <string_view>

namespace pecia::device {

/// Tells whether the process's context is lost with this error. Then every later call gives it
/// again.
bool is_sticky(cudaError_t error);

/// Returns what a user can do about the error, or "" if there is nothing to say.
std::string_view remedy(cudaError_t error);

/// Throws DeviceLost for a sticky error, Unsupported if the driver or the GPU does not fit this
/// build, and else SystemError. The text has the call, its place, CUDA's own words and the remedy.
[[noreturn]] void throw_cuda_error(cudaError_t error, const char* call, const char* file, int line);

}  // namespace pecia::device

/// Throws if a call fails: PECIA_CUDA_CHECK(cudaSetDevice(0)).
#define PECIA_CUDA_CHECK(call)                                                        \
  do {                                                                                \
    const cudaError_t pecia_cuda_error = (call);                                      \
    if (pecia_cuda_error != cudaSuccess)                                              \
      ::pecia::device::throw_cuda_error(pecia_cuda_error, #call, __FILE__, __LINE__); \
  } while (false)
