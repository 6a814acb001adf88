// SPDX-License-Identifier: Apache-2.0
#pragma once
/// CUDA's errors without CUDA, for lib/base/device/cuda/cuda_check.cpp: their names and numbers, CUDA's own
/// words for some, and the error that the runtime keeps until it is taken.

#define CUDART_VERSION 13000  // which has all of these errors

enum cudaError_t {
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorMemoryAllocation = 2,
  cudaErrorInsufficientDriver = 35,
  cudaErrorDevicesUnavailable = 46,
  cudaErrorInvalidDeviceFunction = 98,
  cudaErrorNoDevice = 100,
  cudaErrorNoKernelImageForDevice = 209,
  cudaErrorECCUncorrectable = 214,
  cudaErrorNvlinkUncorrectable = 220,
  cudaErrorContained = 226,
  cudaErrorIllegalAddress = 700,
  cudaErrorLaunchTimeout = 702,
  cudaErrorContextIsDestroyed = 709,
  cudaErrorAssert = 710,
  cudaErrorHardwareStackError = 714,
  cudaErrorIllegalInstruction = 715,
  cudaErrorMisalignedAddress = 716,
  cudaErrorInvalidAddressSpace = 717,
  cudaErrorInvalidPc = 718,
  cudaErrorLaunchFailure = 719,
  cudaErrorTensorMemoryLeak = 721,
  cudaErrorMpsClientTerminated = 810,
  cudaErrorExternalDevice = 911,
};

inline const char* cudaGetErrorName(cudaError_t error) {
  if (error == cudaErrorIllegalAddress) return "cudaErrorIllegalAddress";
  return error == cudaErrorMemoryAllocation ? "cudaErrorMemoryAllocation" : "cudaErrorOther";
}
inline const char* cudaGetErrorString(cudaError_t error) {
  if (error == cudaErrorIllegalAddress) return "an illegal memory access was encountered";
  return error == cudaErrorMemoryAllocation ? "out of memory" : "another error";
}

inline cudaError_t pecia_kept_error = cudaSuccess;
inline cudaError_t cudaGetLastError() {
  const cudaError_t error = pecia_kept_error;
  pecia_kept_error = cudaSuccess;
  return error;
}
