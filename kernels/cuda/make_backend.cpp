// SPDX-License-Identifier: Apache-2.0
#include "kernels/api/backend.hpp"
#include "kernels/cuda/cuda.hpp"
#include "lib/base/device/cuda_device.hpp"

namespace pecia::kernels {

std::unique_ptr<Backend> make_cuda_backend(device::Device& device, AttentionBy attention,
                                           ExpertsBy experts) {
  PECIA_CHECK(device::is_cuda_device(device), "the CUDA backend on '{}'", device.info().name);
  cuda::Libraries libraries = {cuda::make_cublas_matmul(device),
                               cuda::make_cub_row_sort(device),
                               {nullptr, "own kernels were asked for"},
                               {nullptr, "own kernels were asked for"}};
  libraries.wgmma = cuda::find_wgmma_attention(device);
  if (experts == ExpertsBy::library)
    libraries.grouped_matmul = cuda::find_cutlass_grouped_matmul(device);
  switch (attention) {
    case AttentionBy::library:
      libraries.sdpa = cuda::find_cudnn_sdpa(device, cuda::SdpaGraphs::any);
      break;
    case AttentionBy::static_graphs:
      libraries.sdpa = cuda::find_cudnn_sdpa(device, cuda::SdpaGraphs::static_for_each);
      break;
    case AttentionBy::own_kernels:
      break;
  }
  return cuda::make_backend(device, std::move(libraries));
}

}  // namespace pecia::kernels
