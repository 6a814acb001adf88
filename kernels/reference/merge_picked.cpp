// SPDX-License-Identifier: Apache-2.0
#include "kernels/reference/reference.hpp"

namespace pecia::kernels::reference {

/// By merge, part by part: the heads of a row that a part has are a row there.
void merge_picked(const MergePickedArgs& args) {
  const int64_t head_dim = args.out.size(2);
  for (const PickedParts& parts : args.parts)
    for (int64_t p = 0; p < parts.lse.rows(); ++p) {
      const int32_t row = parts.rows.as<int32_t>()[p];
      const int64_t heads = parts.lse.size(1);
      merge({.part_out = parts.out.slice_rows(p, 1),
             .part_lse = parts.lse.slice_rows(p, 1),
             .rows = {},
             .out =
                 TensorView(static_cast<void*>(row_of(args.out, row) + parts.first_head * head_dim),
                            DType::fp32, {1, heads, head_dim}),
             .lse = TensorView(static_cast<void*>(row_of(args.lse, row) + parts.first_head),
                               DType::fp32, {1, heads})});
    }
}

}  // namespace pecia::kernels::reference
