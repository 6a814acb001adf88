// SPDX-License-Identifier: Apache-2.0
#include <thrust/iterator/counting_iterator.h>
#include <thrust/iterator/transform_iterator.h>

#include <cub/device/device_segmented_radix_sort.cuh>

#include "kernels/cuda/sampling/row_sort.hpp"
#include "kernels/cuda/shared/elementwise.cuh"
#include "lib/base/core/error.hpp"
#include "lib/base/device/buffer.hpp"
#include "lib/base/device/cuda/cuda_check.hpp"

namespace pecia::kernels::cuda {
namespace {

__global__ void number_columns_kernel(int32_t* columns, int64_t count) {
  const int64_t step = int64_t{gridDim.y} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.y} * blockDim.x + threadIdx.x; i < count; i += step)
    columns[blockIdx.x * count + i] = static_cast<int32_t>(i);
}

struct RowBegin {
  int64_t columns;
  __host__ __device__ int64_t operator()(int64_t row) const { return row * columns; }
};

/// The radix sort is stable, so equal values keep the order of their columns.
class CubRowSort : public RowSort {
 public:
  explicit CubRowSort(device::Device& device)
      : columns_(device, device::Memory::device), scratch_(device, device::Memory::device) {}

  void run(const float* values, int64_t rows, int64_t columns, float* sorted,
           int32_t* sorted_columns, device::Stream& stream) override {
    auto* const from = columns_.tensor(DType::int32, {rows, columns}).as<int32_t>();
    launch(stream, grid_of_rows(rows, columns), number_columns_kernel, from, columns);
    const auto begins =
        thrust::make_transform_iterator(thrust::counting_iterator<int64_t>(0), RowBegin{columns});
    const auto sort = [&](void* scratch, size_t& bytes) {
      PECIA_CUDA_CHECK(cub::DeviceSegmentedRadixSort::SortPairsDescending(
          scratch, bytes, values, sorted, from, sorted_columns, rows * columns, rows, begins,
          begins + 1, 0, 32, native(stream)));
    };
    size_t bytes = 0;
    sort(nullptr, bytes);
    scratch_.reserve(static_cast<int64_t>(bytes));
    sort(scratch_.data(), bytes);
  }

 private:
  device::Buffer columns_, scratch_;
};

}  // namespace

std::unique_ptr<RowSort> make_cub_row_sort(device::Device& device) {
  return std::make_unique<CubRowSort>(device);
}

}  // namespace pecia::kernels::cuda
