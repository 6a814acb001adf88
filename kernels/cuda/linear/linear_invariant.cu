// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/linear/linear_invariant.hpp"
#include "kernels/cuda/linear/linear_invariant_fma_kernel.cuh"
#include "kernels/cuda/linear/linear_invariant_mma_kernel.cuh"
#include "kernels/cuda/linear/sum_splits_kernel.cuh"
#include "kernels/cuda/shared/elementwise.cuh"

namespace pecia::kernels::cuda {
namespace {

using WideBlock = LinearBlock<2, 4, 4, 2, 32, 4>;     // 128 rows × 128 columns
using NarrowBlock = LinearBlock<1, 2, 1, 1, 128, 4>;  // 16 × 32: many blocks, to read the weights
// Not measured: up to here the weights are read again for every 16 rows.
constexpr int64_t most_narrow_rows = 64;
// Sums of splits that wait for each other, in a cache's size.
constexpr int64_t partials_bytes = int64_t{64} << 20;

/// A product, the sum over each split in its own rows of `to`.
struct Product {
  const TensorView &x, &weight;
  const float* bias;
  Accumulate accumulate;
  const TensorView& to;  ///< [splits · rows, out]
  int splits;
  device::Stream& stream;

  int64_t split_elements() const { return x.size(1) / splits; }

  template <typename T>
  void launch_kernel(void (*kernel)(Matrix<const T>, Matrix<const T>, const float*, Accumulate,
                                    Matrix<float>, int64_t),
                     int64_t tile_rows, int64_t tile_columns, int threads,
                     int64_t shared_bytes) const {
    const int64_t row_tiles = (x.rows() + tile_rows - 1) / tile_rows;
    const int64_t column_tiles = (weight.rows() + tile_columns - 1) / tile_columns;
    launch(stream,
           {.x = row_tiles * column_tiles,
            .y = splits,
            .threads = threads,
            .shared_bytes = shared_bytes},
           kernel, matrix<const T>(x), matrix<const T>(weight), bias, accumulate, matrix<float>(to),
           split_elements());
  }

  template <typename T, typename Block>
  void run_mma() const {
    const auto in_chunks = [&](const TensorView& rows) {
      return rows.row_stride() % Block::chunk == 0 &&
             reinterpret_cast<uintptr_t>(rows.data()) % 16 == 0;
    };
    const bool aligned = split_elements() % Block::chunk == 0 && in_chunks(x) && in_chunks(weight);
    launch_kernel<T>(aligned ? linear_invariant_mma_kernel<T, Block, true>
                             : linear_invariant_mma_kernel<T, Block, false>,
                     Block::rows, Block::columns, Block::threads, Block::shared_bytes);
  }

  void run() const {
    with_stored_type(weight.dtype(), [&](auto type) {
      using T = decltype(type);
      if constexpr (std::is_same_v<T, float>)
        launch_kernel<T>(linear_invariant_fma_kernel, linear_fma_tile, linear_fma_tile,
                         linear_fma_side * linear_fma_side, 0);
      else if (x.rows() <= most_narrow_rows)
        run_mma<T, NarrowBlock>();
      else
        run_mma<T, WideBlock>();
    });
  }
};

}  // namespace

void linear_invariant(const LinearArgs& args, const TensorView& x, const float* bias,
                      Context& context, device::Stream& stream) {
  if (args.splits == 1)
    return Product{x, args.weight, bias, args.accumulate, args.y, 1, stream}.run();
  const int64_t rows = x.rows(), out = args.y.size(1);
  const int64_t row_bytes = args.splits * out * size_of(DType::fp32);
  const int64_t most = std::max<int64_t>(WideBlock::rows, partials_bytes / row_bytes);
  for (int64_t first = 0; first < rows; first += most) {
    const int64_t count = std::min(most, rows - first);
    const TensorView partials = context.products.tensor(DType::fp32, {args.splits * count, out});
    Product{x.slice_rows(first, count),
            args.weight,
            bias,
            Accumulate::no,
            partials,
            args.splits,
            stream}
        .run();
    launch(stream, grid_of_rows(count, out), sum_splits_kernel, matrix<const float>(partials),
           args.splits, args.accumulate, matrix<float>(args.y.slice_rows(first, count)));
  }
}

}  // namespace pecia::kernels::cuda
