// SPDX-License-Identifier: Apache-2.0
#include "kernels/api/row_need.hpp"
#include "kernels/cuda/picked_parts.hpp"
#include "kernels/cuda/shared/warp.cuh"

namespace pecia::kernels::cuda {
namespace {

constexpr int need_threads = 256;

/// A thread adds one head of one part to its row's sums. Grid: (heads of parts, parts).
__global__ void see_always_kernel(const PickedPartsThere* all, float* here, int64_t num_heads) {
  const PickedPartsThere of = all[blockIdx.y];
  const int64_t index = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (index >= of.parts * of.heads) return;
  float& sum = here[of.rows[index / of.heads] * num_heads + of.first_head + index % of.heads];
  const float other = of.lse[index], most = sum < other ? other : sum;
  const float least = other < sum ? other : sum;
  sum = most + log1pf(expf(least - most));
}

struct LearntRowsThere {
  const int32_t* rows;
  int64_t count, learnt;
};

/// A warp finds the need of a row. Grid: (entries of a list / warps of the block, lists).
__global__ void row_need_kernel(const LearntRowsThere* lists, const float* here, const float* all,
                                int64_t num_heads, float growth, float* need) {
  const LearntRowsThere list = lists[blockIdx.y];
  const int64_t entry = (int64_t{blockIdx.x} * blockDim.x + threadIdx.x) / warp_size;
  if (entry >= list.count) return;  // a whole warp
  const int64_t row = list.rows[entry];
  const int lane = threadIdx.x % warp_size;
  float most = 0;
  if (entry < list.learnt)
    for (int64_t head = lane; head < num_heads; head += warp_size) {
      const float share = -expm1f(here[row * num_heads + head] - all[row * num_heads + head]);
      if (share > most) most = share;  // never NaN
    }
  most = warp_max(most);
  if (lane == 0) need[row] = entry < list.learnt ? most : need[row] * growth;
}

}  // namespace

void row_need(const RowNeedArgs& args, Context& context, device::Stream& stream) {
  const int64_t heads = args.here.size(1);
  with_picked_parts(args.always, context, stream,
                    [&](const PickedPartsThere* parts, int64_t count, int64_t most_heads) {
                      launch(stream,
                             {.x = (most_heads + need_threads - 1) / need_threads,
                              .y = count,
                              .threads = need_threads},
                             see_always_kernel, parts, args.here.as<float>(), heads);
                    });
  std::vector<LearntRowsThere> lists;
  int64_t most = 0;
  for (const auto& [rows, learnt] : args.lists) {
    if (rows.rows() == 0) continue;
    lists.push_back({rows.as<const int32_t>(), rows.rows(), learnt});
    most = std::max(most, rows.rows());
  }
  if (lists.empty()) return;
  const std::span<const LearntRowsThere> all = lists;
  context.staging.begin(Staging::bytes_of(all), stream);
  const LearntRowsThere* const there = context.staging.add(all);
  context.staging.send(stream);
  constexpr int warps = need_threads / warp_size;
  launch(stream,
         {.x = (most + warps - 1) / warps,
          .y = static_cast<int64_t>(all.size()),
          .threads = need_threads},
         row_need_kernel, there, args.here.as<const float>(), args.all.as<const float>(), heads,
         args.growth, args.need.as<float>());
}

}  // namespace pecia::kernels::cuda
