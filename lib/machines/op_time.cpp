// SPDX-License-Identifier: Apache-2.0
#include "lib/machines/op_time.hpp"

#include <algorithm>

#include "lib/core/error.hpp"

namespace pecia::machines {
namespace {

double peak_of(DType operands, const RankPeaks& rank) {
  constexpr DType narrow_to_wide[] = {DType::fp8, DType::bf16, DType::fp32};
  const auto first =
      std::ranges::find(narrow_to_wide, operands == DType::fp16 ? DType::bf16 : operands);
  const auto has_peak = [&](DType type) { return rank.flops.contains(type); };
  auto found = std::find_if(first, std::end(narrow_to_wide), has_peak);
  if (found == std::end(narrow_to_wide)) found = std::ranges::find_if(narrow_to_wide, has_peak);
  PECIA_CHECK(found != std::end(narrow_to_wide), "{} has no peak of products", rank.name);
  return rank.flops.at(*found);
}

double memory_seconds(double bytes, const Cluster& cluster) {
  return bytes / (cluster.rank.memory_gbs * 1e9 * cluster.efficiency.copy.of({.bytes = bytes}));
}

}  // namespace

double op_seconds(const kernels::OpWork& op, const Cluster& cluster) {
  double computing = 0;
  if (op.flops > 0) {
    const auto& shares = cluster.efficiency;
    const Efficiency& share = kernels::multiplies_weights(op) ? shares.gemm : shares.attention;
    computing = op.flops / (peak_of(op.operands, cluster.rank) *
                            share.of({.rows = static_cast<double>(op.rows),
                                      .depth = op.depth,
                                      .width = static_cast<double>(op.width)}));
  }
  return std::max(computing,
                  memory_seconds(static_cast<double>(op.bytes_read + op.bytes_written), cluster)) +
         1e-6 * cluster.overhead.op_us;
}

double copy_seconds(double bytes, const Cluster& cluster) {
  return memory_seconds(2 * bytes, cluster) + 1e-6 * cluster.overhead.op_us;
}

}  // namespace pecia::machines
