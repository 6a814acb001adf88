// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "kernels/cuda/cuda.hpp"
#include "kernels/cuda/quantize_rows_kernel.cuh"
#include "kernels/cuda/shared/launch.cuh"

namespace pecia::kernels::cuda {

void quantize_rows(const QuantizeRowsArgs& args, Context&, device::Stream& stream) {
  if (args.codes.dtype() != DType::fp8)
    fail<Unsupported>("the CUDA backend has no codes of {}; use fp8", name_of(args.codes.dtype()));
  auto* const scales = args.scales.as<float>();
  auto* const square_sums = args.square_sums ? args.square_sums.as<float>() : nullptr;
  with_stored_type(args.x.dtype(), [&](auto type) {
    using T = decltype(type);
    constexpr int count = 16 / sizeof(T);
    const auto x = matrix<const T>(args.x);
    const auto codes = matrix<Fp8>(args.codes);
    const auto run = [&](auto* kernel, int64_t items) {
      const int64_t threads = std::clamp<int64_t>((items + 31) / 32 * 32, 32, 512);
      launch(stream, {.x = x.rows, .threads = static_cast<int>(threads)}, kernel, x, codes, scales,
             square_sums);
    };
    if (aligned_to<count>(args.x) && aligned_to<count>(args.codes))
      run(quantize_rows_kernel<count, T>, x.columns / count);
    else
      run(quantize_rows_kernel<1, T>, x.columns);
  });
}

}  // namespace pecia::kernels::cuda
