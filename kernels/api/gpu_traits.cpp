// SPDX-License-Identifier: Apache-2.0
#include "kernels/api/gpu_traits.hpp"

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

BackendTraits gpu_traits() {
  return {.operand_type = gpu_operand_type,
          .query_type = gpu_query_type,
          .rounds_products = true,
          .gains_by_fewer_ops = true,
          .takes_gated_linear = gpu_takes_gated_linear};
}

}  // namespace pecia::kernels
