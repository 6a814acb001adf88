// SPDX-License-Identifier: Apache-2.0
/// What errors of CUDA become, on a double of its runtime.

#include <gtest/gtest.h>

#include "lib/base/core/error.hpp"
#include "lib/base/device/cuda/cuda_check.hpp"

namespace pecia::test {
namespace {

using device::is_sticky;
using device::remedy;

/// The message of the error that a call is turned into; of exactly this type.
template <typename E>
std::string thrown(cudaError_t call) {
  try {
    PECIA_CUDA_CHECK(call);
  } catch (const std::exception& error) {
    EXPECT_EQ(typeid(error), typeid(E)) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

TEST(CudaCheck, AGpuThatIsLostIsSaidToBeWithWhatToDo) {
  const std::string message = thrown<DeviceLost>(cudaErrorIllegalAddress);
  EXPECT_EQ(message.find("an illegal memory access was encountered (cudaErrorIllegalAddress, in "),
            0u)
      << message;
  EXPECT_NE(message.find("test_cuda_check.cpp:"), std::string::npos) << message;
  EXPECT_NE(message.find("). The GPU can no longer be used by this process. Finished requests are "
                         "safe; run the same command again to continue."),
            std::string::npos)
      << message;
}

TEST(CudaCheck, ErrorsThatLeaveTheProcessInconsistentAreSticky) {
  for (const cudaError_t error :
       {cudaErrorECCUncorrectable, cudaErrorNvlinkUncorrectable, cudaErrorContained,
        cudaErrorIllegalAddress, cudaErrorLaunchTimeout, cudaErrorContextIsDestroyed,
        cudaErrorAssert, cudaErrorHardwareStackError, cudaErrorIllegalInstruction,
        cudaErrorMisalignedAddress, cudaErrorInvalidAddressSpace, cudaErrorInvalidPc,
        cudaErrorLaunchFailure, cudaErrorTensorMemoryLeak, cudaErrorMpsClientTerminated,
        cudaErrorExternalDevice}) {
    EXPECT_TRUE(is_sticky(error)) << error;
    EXPECT_NE(remedy(error).find("run the same command again"), std::string::npos) << error;
  }
  for (const cudaError_t error : {cudaSuccess, cudaErrorInvalidValue, cudaErrorMemoryAllocation,
                                  cudaErrorNoDevice, cudaErrorDevicesUnavailable})
    EXPECT_FALSE(is_sticky(error)) << error;
}

TEST(CudaCheck, OtherErrorsAreNotSeenByTheNextCheck) {
  pecia_kept_error = cudaErrorMemoryAllocation;
  EXPECT_NE(thrown<SystemError>(cudaErrorMemoryAllocation).find("nvidia-smi"), std::string::npos);
  EXPECT_EQ(pecia_kept_error, cudaSuccess);
  EXPECT_EQ(remedy(cudaErrorInvalidValue), "");
}

TEST(CudaCheck, WhatDoesNotFitThisBuildIsUnsupported) {
  for (const cudaError_t error : {cudaErrorNoDevice, cudaErrorInsufficientDriver,
                                  cudaErrorNoKernelImageForDevice, cudaErrorInvalidDeviceFunction})
    EXPECT_GT(thrown<Unsupported>(error).size(), 60u) << error;
}

TEST(CudaCheck, ASuccessIsNone) {
  EXPECT_NO_THROW(PECIA_CUDA_CHECK(cudaSuccess));
}

}  // namespace
}  // namespace pecia::test
