// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Launches kernels. This is the one place with CUDA's syntax for launches.

#include <cstdint>

#include "lib/base/core/error.hpp"
#include "lib/base/device/stream.hpp"

#ifdef __CUDACC__
#include <cuda_runtime.h>

#include "lib/base/device/cuda/cuda_check.hpp"
#include "lib/base/device/cuda/cuda_stream.hpp"
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

template <typename... Params, typename... Args>
void launch_as(bool early, const device::Stream& stream, const Grid& grid,
               void (*kernel)(Params...), Args... args) {
  if (grid.x == 0 || grid.y == 0) return;
  PECIA_CHECK(grid.x <= max_grid_x && grid.y <= max_grid_y, "a grid of {} × {} blocks", grid.x,
              grid.y);
  constexpr int64_t shared_bytes_of_every_kernel = 48 << 10;
  if (grid.shared_bytes > shared_bytes_of_every_kernel)
    PECIA_CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                          static_cast<int>(grid.shared_bytes)));
  const dim3 blocks(static_cast<unsigned>(grid.x), static_cast<unsigned>(grid.y));
  device::CudaStream& on = cuda_stream(stream);
  on.submit(
      [=, &on] {
        cudaLaunchAttribute attribute;
        attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
        attribute.val.programmaticStreamSerializationAllowed = 1;
        cudaLaunchConfig_t config = {};
        config.gridDim = blocks;
        config.blockDim = dim3(grid.threads);
        config.dynamicSmemBytes = grid.shared_bytes;
        config.stream = on.get();
        config.attrs = &attribute;
        config.numAttrs = early && on.launches_early() ? 1 : 0;
        PECIA_CUDA_CHECK(cudaLaunchKernelEx(&config, kernel, static_cast<Params>(args)...));
      },
      kernel, grid.x, grid.y, grid.threads, grid.shared_bytes, args...);
}

/// Enqueues the kernel. Throws InvalidArgument for a grid that CUDA does not take, and SystemError
/// if the launch is refused.
template <typename... Params, typename... Args>
void launch(const device::Stream& stream, const Grid& grid, void (*kernel)(Params...),
            Args... args) {
  launch_as(false, stream, grid, kernel, args...);
}

/// Does the same for a kernel of which every thread calls wait_for_earlier_kernels before it reads
/// what another kernel writes, and before it writes. It may begin while the kernel before it still
/// runs, where that one calls let_next_kernel_begin (programmatic dependent launch, CUDA C++
/// Programming Guide, "Programmatic Dependent Launch and Synchronization"). GPUs before compute
/// capability 9.0 launch it as any other.
template <typename... Params, typename... Args>
void launch_early(const device::Stream& stream, const Grid& grid, void (*kernel)(Params...),
                  Args... args) {
  launch_as(true, stream, grid, kernel, args...);
}

}  // namespace pecia::kernels::cuda
#endif
