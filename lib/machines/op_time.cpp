// SPDX-License-Identifier: Apache-2.0
#include "lib/machines/op_time.hpp"

#include <algorithm>
#include <cmath>

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

double memory_seconds(double bytes, const Efficiency& share, const Cluster& cluster) {
  return bytes / (cluster.rank.memory_gbs * 1e9 * share.of({.bytes = bytes}));
}

/// How many times its part of what ranks share a rank has: `alone` times without others.
double gain(double alone, double others) {
  return std::lerp(alone, 1.0, others);
}

}  // namespace

OpParts parts_of(const kernels::OpWork& op, const Cluster& cluster) {
  const auto& shares = cluster.efficiency;
  const auto bytes = static_cast<double>(op.bytes_read + op.bytes_written);
  if (op.flops == 0) return {0, memory_seconds(bytes, shares.copy, cluster)};
  const bool attends = !kernels::multiplies_weights(op);
  const Efficiency& share = attends ? shares.attention : shares.gemm;
  const double rows = op.item_rows > 0 ? op.item_rows : static_cast<double>(op.rows);
  const double computing =
      op.flops /
      (peak_of(op.operands, cluster.rank) *
       share.of({.rows = rows, .depth = op.depth, .width = static_cast<double>(op.width)}));
  const Efficiency& moving = attends && shares.stream ? *shares.stream : shares.copy;
  return {computing, memory_seconds(bytes, moving, cluster)};
}

double op_seconds(const kernels::OpWork& op, const Cluster& cluster, double others) {
  const auto [computing, moving] = parts_of(op, cluster);
  // Shares of products with few rows may tell what their weights take to be read.
  const bool waits_for_memory = computing < 2 * moving;
  const double alone = waits_for_memory ? cluster.rank.alone : cluster.rank.alone_flops;
  const auto& pieces = cluster.efficiency.pieces;
  const double share = waits_for_memory && op.piece_bytes > 0 && pieces
                           ? pieces->of({.bytes = static_cast<double>(op.piece_bytes)})
                           : 1;
  return std::max(computing, moving) / (share * gain(alone, others)) +
         1e-6 * cluster.overhead.op_us;
}

double copy_seconds(double bytes, const Cluster& cluster, double others) {
  return memory_seconds(2 * bytes, cluster.efficiency.copy, cluster) /
             gain(cluster.rank.alone, others) +
         1e-6 * cluster.overhead.op_us;
}

}  // namespace pecia::machines
