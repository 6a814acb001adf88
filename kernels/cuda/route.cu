// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/cuda.hpp"
#include "kernels/cuda/shared/launch.cuh"
#include "kernels/cuda/shared/matrix.hpp"

namespace pecia::kernels::cuda {
namespace {

constexpr int rows_per_block = 128;

/// A thread chooses for one row: it keeps the k best so far, the best first. An equal one that comes
/// later stays behind.
__global__ void route_kernel(Matrix<const float> logits, Matrix<int32_t> chosen,
                             Matrix<float> weights, Routing routing) {
  const int64_t row = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (row >= logits.rows) return;
  const float* const of = logits.row(row);
  int32_t* const best = chosen.row(row);
  const int64_t k = chosen.columns;
  int64_t found = 0;
  for (int64_t e = 0; e < logits.columns; ++e) {
    int64_t place = found;
    while (place > 0 && of[e] > of[best[place - 1]]) --place;
    if (place == k) continue;
    if (found < k) ++found;
    for (int64_t i = found - 1; i > place; --i) best[i] = best[i - 1];
    best[place] = static_cast<int32_t>(e);
  }
  bool broken = false;
  float most = of[0];
  for (int64_t e = 0; e < logits.columns; ++e) {
    broken = broken || of[e] != of[e];
    most = fmaxf(most, of[e]);
  }
  double sum = 0;
  const int64_t terms = routing == Routing::of_all ? logits.columns : k;
  for (int64_t i = 0; i < terms; ++i)
    sum += expf(of[routing == Routing::of_all ? i : best[i]] - most);
  for (int64_t j = 0; j < k; ++j)
    weights.row(row)[j] = broken ? nanf("") : static_cast<float>(expf(of[best[j]] - most) / sum);
}

}  // namespace

void route(const RouteArgs& args, Context&, device::Stream& stream) {
  const int64_t rows = args.logits.rows();
  launch(stream, {.x = (rows + rows_per_block - 1) / rows_per_block, .threads = rows_per_block},
         route_kernel, matrix<const float>(args.logits), matrix<int32_t>(args.chosen),
         matrix<float>(args.weights), args.routing);
}

}  // namespace pecia::kernels::cuda
