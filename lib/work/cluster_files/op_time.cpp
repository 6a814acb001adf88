// SPDX-License-Identifier: Apache-2.0
#include "lib/work/cluster_files/op_time.hpp"

#include <algorithm>
#include <cmath>

#include "lib/base/core/codes.hpp"
#include "lib/base/core/error.hpp"

namespace pecia::cluster_files {
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

double rows_of(const kernels::OpWork& op) {
  return op.item_rows > 0 ? op.item_rows : static_cast<double>(op.rows);
}

/// What products reach with these rows where depth and width do not count.
double share_of_rows(double rows, const Efficiency& gemm) {
  double share = gemm.factor;
  for (const Curve& curve : gemm.curves)
    if (curve.axis == Axis::rows) share *= curve.at(rows);
  return share;
}

/// Whether a product of `rows` rows takes less than twice as long as one of one row.
bool waits_for_weights(double rows, const Efficiency& gemm) {
  return rows / share_of_rows(rows, gemm) < 2 / share_of_rows(1, gemm);
}

/// Seconds of a product that waits for its weights, as long as their bytes take beside `rows` rows.
/// One row of weights of bf16, by which shares of few rows are known, has a byte for each FLOP. Codes
/// have fewer bytes, but no more FLOP/s than the fewest rows that do not wait.
double reading_seconds(const kernels::OpWork& op, double bytes, const Cluster& cluster) {
  const Efficiency& gemm = cluster.efficiency.gemm;
  const double rows = rows_of(op), peak = peak_of(DType::bf16, cluster.rank);
  const double reading = bytes / (peak * share_of_rows(rows, gemm) / rows *
                                  cluster.efficiency.weights->of({.bytes = bytes}));
  if (!is_code(op.dtype)) return reading;
  double computing = 0;
  for (const Curve& curve : gemm.curves)
    for (const Curve::Point& point : curve.points)
      if (curve.axis == Axis::rows && computing == 0 && !waits_for_weights(point.size, gemm))
        computing = op.flops / (peak * share_of_rows(point.size, gemm));
  return std::max(reading, computing);
}

/// Of a recurrence: its products, and its longest sequence's chunks one after the other.
OpParts parts_in_chunks(const kernels::OpWork& op, const Cluster& cluster) {
  const auto& shares = cluster.efficiency;
  const auto bytes = static_cast<double>(op.bytes_read + op.bytes_written);
  const double products = op.operands == DType::fp32 ? 3 : 1;  // for one
  const double share =
      shares.recurrence_chunks.value_or(shares.attention)
          .of({.rows = rows_of(op), .depth = op.depth, .width = static_cast<double>(op.width)});
  const double computing = products * op.flops / (peak_of(DType::bf16, cluster.rank) * share);
  const int64_t chunks = (op.serial_rows + op.chunk_rows - 1) / op.chunk_rows;
  const double walking =
      products * 1e-6 * cluster.overhead.recurrent_chunk_us * static_cast<double>(chunks);
  return {std::max(computing, walking), memory_seconds(bytes, shares.copy, cluster)};
}

}  // namespace

OpParts parts_of(const kernels::OpWork& op, const Cluster& cluster) {
  const auto& shares = cluster.efficiency;
  const auto bytes = static_cast<double>(op.bytes_read + op.bytes_written);
  if (op.chunk_rows > 0) return parts_in_chunks(op, cluster);
  if (op.flops == 0) return {0, memory_seconds(bytes, shares.copy, cluster)};
  const bool attends = !kernels::multiplies_weights(op);
  const double peak = peak_of(op.operands, cluster.rank), rows = rows_of(op);
  const Efficiency& share = op.serial_rows > 0 && shares.recurrence ? *shares.recurrence
                            : attends                               ? shares.attention
                                                                    : shares.gemm;
  if (!attends && shares.weights && waits_for_weights(rows, share)) {
    const double reading = reading_seconds(op, bytes, cluster);
    return {reading, reading};
  }
  const double computing =
      op.flops /
      (peak * share.of({.rows = rows, .depth = op.depth, .width = static_cast<double>(op.width)}));
  const double walking =
      1e-6 * cluster.overhead.recurrent_row_us * static_cast<double>(op.serial_rows);
  const Efficiency& moving = attends && shares.stream ? *shares.stream : shares.copy;
  return {std::max(computing, walking), memory_seconds(bytes, moving, cluster)};
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

}  // namespace pecia::cluster_files
