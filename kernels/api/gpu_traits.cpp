// SPDX-License-Identifier: Apache-2.0
#include "kernels/api/gpu_traits.hpp"

#include <algorithm>

#include "lib/base/core/codes.hpp"

namespace pecia::kernels {
namespace {

bool alike(const TensorView& a, const TensorView& b) {
  return a.rank() == b.rank() && (a.rank() < 2 || a.size(1) == b.size(1));
}

}  // namespace

DType gpu_operand_type(DType weights) {
  return is_code(weights) ? DType::bf16 : weights;
}

bool gpu_attends_on_tensor_cores(DType keys, int64_t head_dim) {
  return keys != DType::fp32 && (head_dim == 64 || (head_dim == 80 && keys != DType::fp8) ||
                                 head_dim == 96 || head_dim == 128);
}

DType gpu_query_type(DType keys, int64_t head_dim) {
  return gpu_attends_on_tensor_cores(keys, head_dim) ? gpu_operand_type(keys) : DType::fp32;
}

bool gpu_multiplies_codes(DType type, const TensorView& scales) {
  return type == DType::int8 || type == DType::int4 || type == DType::mxfp4 ||
         type == DType::nvfp4 || (type == DType::fp8 && scales.rank() == 2);
}

bool gpu_takes_gated_linear(const GatedLinearArgs& args) {
  const DType type = args.gate.dtype();
  const bool codes = gpu_multiplies_codes(type, args.gate_scales);
  const bool multiplied = codes || type == DType::bf16 || type == DType::fp8;
  const int64_t most_rows = codes ? gpu_most_coded_rows : gpu_tile_rows;
  return multiplied && args.up.dtype() == type && alike(args.gate_scales, args.up_scales) &&
         args.out.dtype() == DType::bf16 && args.x.rows() <= most_rows;
}

bool gpu_takes_chunks(const RecurrenceArgs& args) {
  constexpr int64_t most_keys = 128;
  int64_t most_rows = 0;
  for (const StateRows& item : args.items) most_rows = std::max(most_rows, item.num_rows);
  return args.row_invariant == RowInvariant::no && args.v && args.out &&
         args.key_dim() <= most_keys && args.key_dim() % 4 == 0 && most_rows >= gpu_chunk_rows;
}

double gpu_chunk_flops(int64_t heads, int64_t key_heads, int64_t key_dim, int64_t value_dim,
                       bool corrects) {
  const auto keys = static_cast<double>(key_dim), values = static_cast<double>(value_dim);
  const double reads = corrects ? 2 : 1, earlier = 0.5 * gpu_chunk_rows;
  return 2 *
         (static_cast<double>(heads) * ((1 + reads) * keys * values + reads * earlier * values) +
          static_cast<double>(key_heads) * reads * earlier * keys);
}

BackendTraits gpu_traits() {
  return {.operand_type = gpu_operand_type,
          .query_type = gpu_query_type,
          .rounds_products = true,
          .gains_by_fewer_ops = true,
          .takes_gated_linear = gpu_takes_gated_linear,
          .takes_chunks = gpu_takes_chunks};
}

}  // namespace pecia::kernels
