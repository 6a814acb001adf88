// SPDX-License-Identifier: Apache-2.0
#include "lib/model/attention/head_blocks.hpp"

namespace pecia::attention {

int64_t ExchangePlan::num_rows() const {
  int64_t count = 0;
  for (const parallel::RowRange& range : rows) count += range.size();
  return count;
}

void copy_heads(const Compute& compute, const TensorView& from, int64_t from_head,
                const TensorView& to, int64_t to_head, int64_t width) {
  const auto columns = [&](const TensorView& heads, int64_t first) {
    const TensorView flat = heads.reshape({heads.rows(), heads.row_elements()});
    return flat.slice_columns(first * heads.size(2), width * heads.size(2));
  };
  compute.copy(columns(from, from_head), columns(to, to_head));
}

TensorView pack_heads(const Compute& compute, const TensorView& x, int64_t first_held,
                      const parallel::HeadRange& wanted, DType type, device::Buffer& buffer) {
  const TensorView block = buffer.tensor(type, {x.rows(), wanted.size(), x.size(2)});
  copy_heads(compute, x, wanted.begin - first_held, block, 0, wanted.size());
  return block;
}

TensorView arrivals(const TensorView& x, DType type, device::Buffer& buffer) {
  return type == x.dtype() ? x : buffer.tensor(type, {x.rows(), x.size(1), x.size(2)});
}

}  // namespace pecia::attention
