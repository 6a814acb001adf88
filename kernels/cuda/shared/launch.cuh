// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Launches kernels. This is the one place with CUDA's syntax for launches.

#include <cstdint>

#include "lib/core/error.hpp"
#include "lib/device/stream.hpp"

#ifdef __CUDACC__
#include <cuda_runtime.h>

#include "kernels/cuda/device/cuda_check.hpp"
#include "kernels/cuda/device/cuda_stream.hpp"
#endif

namespace pecia::kernels::cuda {

struct Grid {
  int64_t x, y = 1;  ///< blocks; there are none if one of the two is 0
  int threads = 256;
  int64_t shared_bytes = 0;
};

inline constexpr int64_t max_grid_x = (int64_t{1} << 31) - 1, max_grid_y = 65535;

}  // namespace pecia::kernels::cuda

#ifdef __CUDACC__
namespace pecia::kernels::cuda {

/// Enqueues the kernel. Throws InvalidArgument for a grid that CUDA does not take, and SystemError
/// if the launch is refused.
template <typename... Params, typename... Args>
void launch(const device::Stream& stream, const Grid& grid, void (*kernel)(Params...),
            Args... args) {
  if (grid.x == 0 || grid.y == 0) return;
  PECIA_CHECK(grid.x <= max_grid_x && grid.y <= max_grid_y, "a grid of {} × {} blocks", grid.x,
              grid.y);
  constexpr int64_t shared_bytes_of_every_kernel = 48 << 10;
  if (grid.shared_bytes > shared_bytes_of_every_kernel)
    PECIA_CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                          static_cast<int>(grid.shared_bytes)));
  const dim3 blocks(static_cast<unsigned>(grid.x), static_cast<unsigned>(grid.y));
  CudaStream& on = cuda_stream(stream);
  on.submit(
      [=, &on] {
        kernel<<<blocks, grid.threads, grid.shared_bytes, on.get()>>>(args...);
        PECIA_CUDA_CHECK(cudaGetLastError());
      },
      kernel, grid.x, grid.y, grid.threads, grid.shared_bytes, args...);
}

}  // namespace pecia::kernels::cuda
#endif
