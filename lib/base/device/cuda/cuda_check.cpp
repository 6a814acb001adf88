// SPDX-License-Identifier: Apache-2.0
#include "lib/base/device/cuda/cuda_check.hpp"

#include "lib/base/core/error.hpp"

namespace pecia::device {

bool is_sticky(cudaError_t error) {
  switch (error) {
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchFailure:
    case cudaErrorLaunchTimeout:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorAssert:
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
#if CUDART_VERSION >= 12080
    case cudaErrorContained:
    case cudaErrorTensorMemoryLeak:
#endif
    case cudaErrorMpsClientTerminated:
    case cudaErrorExternalDevice:
    case cudaErrorContextIsDestroyed:
      return true;
    default:  // CUDA's list is long and grows
      return false;
  }
}

std::string_view remedy(cudaError_t error) {
  switch (error) {
    case cudaErrorNoDevice:
      return "No GPU is visible: check the driver with nvidia-smi, CUDA_VISIBLE_DEVICES and the "
             "job's "
             "GPU request, or set backend: cpu.";
    case cudaErrorInsufficientDriver:
      return "The NVIDIA driver is missing or older than this build's CUDA (CUDA 13 needs 580, "
             "CUDA "
             "12 needs 525): load or update it, build with an older CUDA, or set backend: cpu.";
    case cudaErrorNoKernelImageForDevice:
    case cudaErrorInvalidDeviceFunction:
      return "This build holds no code for this GPU: configure with PECIA_CUDA_ARCHITECTURES set "
             "to its compute capability.";
    case cudaErrorMemoryAllocation:
      return "The GPU's memory is full: see who else uses it with nvidia-smi, or lower kv.memory "
             "or "
             "batch.max_batch_tokens.";
    case cudaErrorDevicesUnavailable:
      return "Another process holds the GPU exclusively: check nvidia-smi.";
    default:  // CUDA's list is long and grows
      return is_sticky(error) ? "The GPU can no longer be used by this process. Finished requests "
                                "are safe; run the same command again to continue."
                              : "";
  }
}

void throw_cuda_error(cudaError_t error, const char* call, const char* file, int line) {
  if (!is_sticky(error)) cudaGetLastError();  // so that the next check does not see this one
  const std::string_view hint = remedy(error);
  const std::string message =
      fmt::format("{} ({}, in {} at {}:{}).{}{}", cudaGetErrorString(error),
                  cudaGetErrorName(error), call, file, line, hint.empty() ? "" : " ", hint);
  if (is_sticky(error)) throw DeviceLost(message);
  if (error == cudaErrorNoDevice || error == cudaErrorInsufficientDriver ||
      error == cudaErrorNoKernelImageForDevice || error == cudaErrorInvalidDeviceFunction)
    throw Unsupported(message);
  throw SystemError(message);
}

}  // namespace pecia::device
