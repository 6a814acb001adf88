// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <memory>

#include "kernels/api/backend.hpp"
#include "kernels/cuda/attention/attention_wgmma.hpp"
#include "kernels/cuda/attention/sdpa.hpp"
#include "kernels/cuda/experts/grouped_matmul.hpp"

namespace pecia::test {

/// The CUDA backend's own code, its kernels run by the emulator and its libraries replaced by plain
/// loops: on a device whose memory the CPU can touch when its streams run.
/// `products`: whether those of fp8 take scales of rows, as on one kind of GPU, or not, or only
/// where a row has at most most_scaled_depth elements. Attention and grouped products are done by the
/// kernels alone unless a library is given (plain_sdpa.hpp, plain_grouped_matmul.hpp).
enum class Products { with_scales, without_scales, with_scales_of_some_shapes };
inline constexpr int64_t most_scaled_depth = 16;
std::unique_ptr<kernels::Backend> make_emulated_backend(device::Device& device,
                                                        Products products = Products::with_scales);
std::unique_ptr<kernels::Backend> make_emulated_backend(device::Device& device,
                                                        std::unique_ptr<kernels::cuda::Sdpa> sdpa);
std::unique_ptr<kernels::Backend> make_emulated_backend(
    device::Device& device, std::unique_ptr<kernels::cuda::GroupedMatmul> grouped_matmul,
    int64_t widened_expert_bytes = kernels::gpu_widened_expert_bytes);
std::unique_ptr<kernels::Backend> make_emulated_backend_of_groups(
    device::Device& device, kernels::cuda::FoundGroupedMatmul grouped_matmul,
    int64_t widened_expert_bytes = kernels::gpu_widened_expert_bytes);
/// With attention by wgmma.
std::unique_ptr<kernels::Backend> make_emulated_backend(
    device::Device& device, kernels::cuda::FoundWgmmaAttention wgmma,
    std::unique_ptr<kernels::cuda::Sdpa> sdpa = nullptr);

}  // namespace pecia::test
