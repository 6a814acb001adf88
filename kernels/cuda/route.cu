// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/cuda.hpp"
#include "kernels/cuda/shared/launch.cuh"
#include "kernels/cuda/shared/matrix.hpp"
#include "kernels/cuda/shared/warp.cuh"

namespace pecia::kernels::cuda {
namespace {

constexpr int rows_per_block = 4;

/// A number that is larger where the logit is, and where equal logits come earlier. NaN is the
/// smallest logit; both zeros are equal. 0 is below all.
__device__ __forceinline__ uint64_t rank_of(float logit, int64_t expert) {
  const uint32_t bits = bits_of_float(logit + 0.0f);
  const uint32_t ordered = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
  const uint32_t place = logit == logit ? ordered : 0;
  return uint64_t{place} << 32 | (0xffffffffu - static_cast<uint32_t>(expert));
}

struct Keys {
  Routing routing;
  const float* bias;  ///< or null
  SigmoidRouting sigmoid;

  __device__ __forceinline__ float score(float logit) const { return 1.0f / (1.0f + expf(-logit)); }
  /// What is compared.
  __device__ __forceinline__ float operator()(float logit, int64_t expert) const {
    if (routing != Routing::sigmoid || sigmoid.by_logits) return logit;
    return score(logit) + (bias == nullptr ? 0.0f : bias[expert]);
  }
};

/// The groups that a row takes experts of, a bit each. All lanes get the same.
__device__ __forceinline__ uint32_t kept_groups(const Keys& keys, const float* logits,
                                                int64_t experts, int lane) {
  const int groups = keys.sigmoid.groups;
  if (groups == 1) return 1;
  const int64_t width = experts / groups;
  float sum = 0;  // of the two best of the group that has the lane's number
  for (int group = 0; group < groups; ++group) {
    float best = -INFINITY, second = -INFINITY;
    for (int64_t e = group * width + lane; e < (group + 1) * width; e += warp_size) {
      const float key = keys(logits[e], e);
      second = fmaxf(second, fminf(best, key));
      best = fmaxf(best, key);
    }
#pragma unroll
    for (int offset = warp_size / 2; offset > 0; offset /= 2) {
      const float other = __shfl_xor_sync(all_lanes, best, offset);
      const float other_second = __shfl_xor_sync(all_lanes, second, offset);
      second = fmaxf(fmaxf(second, other_second), fminf(best, other));
      best = fmaxf(best, other);
    }
    if (lane == group) sum = best + second;
  }
  int better = 0;
  for (int group = 0; group < groups; ++group) {
    const float other = __shfl_sync(all_lanes, sum, group);
    better += other > sum || (other == sum && group < lane);
  }
  uint32_t kept = lane < groups && better < keys.sigmoid.kept_groups ? 1u << lane : 0u;
#pragma unroll
  for (int offset = warp_size / 2; offset > 0; offset /= 2)
    kept |= __shfl_xor_sync(all_lanes, kept, offset);
  return kept;
}

/// A warp chooses for one row: k times the best one that comes after the one before. `scales` may be
/// null.
__global__ void route_kernel(Matrix<const float> logits, Matrix<int32_t> chosen,
                             Matrix<float> weights, Keys keys, const float* scales) {
  wait_for_earlier_kernels();
  let_next_kernel_begin();
  const int lane = threadIdx.x % warp_size;
  const int64_t row = int64_t{blockIdx.x} * rows_per_block + threadIdx.x / warp_size;
  if (row >= logits.rows) return;  // a whole warp
  const float* const of = logits.row(row);
  int32_t* const best = chosen.row(row);
  const int64_t k = chosen.columns;
  const uint32_t kept = kept_groups(keys, of, logits.columns, lane);
  const int64_t group_width = logits.columns / keys.sigmoid.groups;
  uint64_t before = ~uint64_t{0};
  for (int64_t taken = 0; taken < k; ++taken) {
    uint64_t next = 0;
    for (int64_t e = lane; e < logits.columns; e += warp_size) {
      const bool is_kept = (kept >> (e / group_width) & 1u) != 0;
      const uint64_t rank = rank_of(is_kept ? keys(of[e], e) : -INFINITY, e);
      if (rank < before && rank > next) next = rank;
    }
#pragma unroll
    for (int offset = warp_size / 2; offset > 0; offset /= 2) {
      const uint64_t other = __shfl_xor_sync(all_lanes, next, offset);
      if (other > next) next = other;
    }
    before = next;
    if (lane == 0) best[taken] = static_cast<int32_t>(0xffffffffu - static_cast<uint32_t>(next));
  }
  __syncwarp();  // all lanes read what the first has written
  int broken = 0;
  float most = of[0];
  for (int64_t e = lane; e < logits.columns; e += warp_size) {
    broken += of[e] != of[e] || of[e] == INFINITY;
    most = fmaxf(most, of[e]);
  }
  broken = warp_sum(broken);
  most = warp_max(most);
  const bool of_all = keys.routing == Routing::of_all, scored = keys.routing == Routing::sigmoid;
  const auto share = [&](int64_t e) { return scored ? keys.score(of[e]) : expf(of[e] - most); };
  double sum = 0;
  const int64_t terms = of_all ? logits.columns : k;
  for (int64_t i = lane; i < terms; i += warp_size) sum += share(of_all ? i : best[i]);
  sum = warp_sum(sum);
  if (scored) sum = keys.sigmoid.normed ? sum + 1e-20 : 1.0;
  const double factor = keys.sigmoid.scale / sum;
  for (int64_t j = lane; j < k; j += warp_size) {
    const auto weight = static_cast<float>(share(best[j]) * factor);
    weights.row(row)[j] = broken > 0          ? nanf("")
                          : scales != nullptr ? weight * scales[best[j]]
                                              : weight;
  }
}

}  // namespace

void route(const RouteArgs& args, Context&, device::Stream& stream) {
  const int64_t rows = args.logits.rows();
  launch_early(
      stream,
      {.x = (rows + rows_per_block - 1) / rows_per_block, .threads = rows_per_block * warp_size},
      route_kernel, matrix<const float>(args.logits), matrix<int32_t>(args.chosen),
      matrix<float>(args.weights),
      Keys{args.routing, args.bias ? args.bias.as<const float>() : nullptr, args.sigmoid},
      args.scales ? args.scales.as<const float>() : nullptr);
}

}  // namespace pecia::kernels::cuda
