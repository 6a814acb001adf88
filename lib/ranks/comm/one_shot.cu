// SPDX-License-Identifier: Apache-2.0
#include "lib/base/device/cuda/cuda_check.hpp"
#include "lib/base/device/cuda/cuda_stream.hpp"
#include "lib/ranks/comm/one_shot_cuda.hpp"
#include "lib/ranks/comm/one_shot_kernel.cuh"

namespace pecia::comm {

void launch_one_shot(const OneShotParams& params, DType dtype, device::Stream& stream) {
  const cudaStream_t on = device::native(stream);
  if (dtype == DType::bf16)
    one_shot_kernel<kernels::cuda::Bf16><<<one_shot_blocks, one_shot_threads, 0, on>>>(params);
  else
    one_shot_kernel<float><<<one_shot_blocks, one_shot_threads, 0, on>>>(params);
  PECIA_CUDA_CHECK(cudaGetLastError());
}

}  // namespace pecia::comm
