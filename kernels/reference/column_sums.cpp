// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "kernels/reference/reference.hpp"

namespace pecia::kernels::reference {
void column_sums(const ColumnSumsArgs& args) {
  const int64_t num_heads = args.q.size(1), head_dim = args.q.size(2);
  const KeyRun& run = args.run;
  const StoredKeys& keys = args.keys;
  for (int64_t head = 0; head < args.num_kv_heads; ++head)
    std::fill_n(row_of(args.sums, head), run.num_keys, 0.0f);
  for (int64_t head = 0; head < num_heads; ++head) {
    const int64_t kv_head = head / (num_heads / args.num_kv_heads);
    for (int64_t s = 0; s < run.num_keys; ++s) {
      const int64_t begin = run.offset + kv_head * run.head_stride + s * head_dim;
      const double key_scale = keys.k_scales ? double{keys.k_scales[begin / head_dim]} : 1.0;
      double sum = 0;
      for (int64_t row = 0; row < args.q.rows(); ++row) {
        const float lse = row_of(args.lse, row)[head];
        if (lse == empty_lse || !args.window.sees(args.query_positions[row], run.position_of(s)))
          continue;
        const float* q = row_of(args.q, row) + head * head_dim;
        double dot = 0;
        for (int64_t i = 0; i < head_dim; ++i)
          dot += double{q[i]} * load_as_float(keys.k, args.kv_dtype, begin + i);
        sum += std::exp(dot * key_scale * args.scale - lse);
      }
      if (sum > 0) row_of(args.sums, kv_head)[s] += static_cast<float>(sum);  // never NaN
    }
  }
}

}  // namespace pecia::kernels::reference
