// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <vector>

#include "kernels/reference/reference.hpp"

namespace pecia::kernels::reference {
namespace {

/// Score of a key that the row sees, and the element at which it and its value begin.
struct SeenKey {
  double score;
  int64_t begin;
};

/// What the vector that begins at element `begin` is multiplied by.
double scale_at(const float* scales, int64_t begin, int64_t head_dim) {
  return scales ? double{scales[begin / head_dim]} : 1.0;
}

bool sees(int64_t query, int64_t key, int64_t window) {
  return key <= query && (window == 0 || key > query - window);
}

void attend(const AttentionArgs& args, const AttentionItem& item, int64_t row, int64_t head) {
  const int64_t head_dim = args.q.size(2);
  const int64_t kv_head = head / (args.q.size(1) / args.num_kv_heads);
  const float* q = row_of(args.q, row) + head * head_dim;
  float* out = row_of(args.out, row) + head * head_dim;

  std::vector<SeenKey> seen;
  double max = empty_lse;
  for (const KeyRun& run : args.runs.subspan(item.first_run, item.num_runs))
    for (int64_t s = 0; s < run.num_keys; ++s) {
      if (!sees(args.query_positions[row], run.position_of(s), args.window)) continue;
      const int64_t begin = run.offset + kv_head * run.head_stride + s * head_dim;
      double dot = 0;
      for (int64_t i = 0; i < head_dim; ++i)
        dot += double{q[i]} * load_as_float(args.keys.k, args.kv_dtype, begin + i);
      dot *= scale_at(args.keys.k_scales, begin, head_dim);
      seen.push_back({dot * args.scale, begin});
      max = std::max(max, seen.back().score);
    }

  double sum = 0;
  std::vector<double> values(head_dim);
  for (const SeenKey& key : seen) {
    const double weight = std::exp(key.score - max);
    sum += weight;
    const double share = weight * scale_at(args.keys.v_scales, key.begin, head_dim);
    for (int64_t i = 0; i < head_dim; ++i)
      values[i] += share * load_as_float(args.keys.v, args.kv_dtype, key.begin + i);
  }
  for (int64_t i = 0; i < head_dim; ++i)
    out[i] = seen.empty() ? 0.0f : static_cast<float>(values[i] / sum);
  row_of(args.lse, row)[head] = seen.empty() ? empty_lse : static_cast<float>(max + std::log(sum));
}

}  // namespace

void attention(const AttentionArgs& args) {
  for (const AttentionItem& item : args.items)
    for (int64_t row = item.first_row; row < item.first_row + item.num_rows; ++row)
      for (int64_t head = 0; head < args.q.size(1); ++head) attend(args, item, row, head);
}

}  // namespace pecia::kernels::reference
