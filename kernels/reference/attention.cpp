// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <vector>

#include "kernels/reference/reference.hpp"

namespace pecia::kernels::reference {
namespace {

/// The keys and values of an item and a KV head, widened, and what they are multiplied by.
struct ItemKeys {
  std::vector<float> k, v;                 ///< [keys, head_dim], [keys, value_dim]
  std::vector<double> k_scales, v_scales;  ///< [keys]
  std::vector<int64_t> positions;          ///< [keys]
};

ItemKeys keys_of(const AttentionArgs& args, const AttentionItem& item, int64_t kv_head) {
  const int64_t head_dim = args.q.size(2);
  ItemKeys keys;
  for (const KeyRun& run : args.runs.subspan(item.first_run, item.num_runs))
    for (int64_t s = 0; s < run.num_keys; ++s) {
      const int64_t begin = run.offset + kv_head * run.head_stride + s * head_dim;
      for (int64_t i = begin; i < begin + head_dim; ++i)
        keys.k.push_back(load_as_float(args.keys.k, args.kv_dtype, i));
      for (int64_t i = begin; i < begin + args.out.size(2); ++i)
        keys.v.push_back(load_as_float(args.keys.v, args.kv_dtype, i));
      const auto scale = [&](const float* scales) {
        return scales ? double{scales[begin / head_dim]} : 1.0;
      };
      keys.k_scales.push_back(scale(args.keys.k_scales));
      keys.v_scales.push_back(scale(args.keys.v_scales));
      keys.positions.push_back(run.position_of(s));
    }
  return keys;
}

/// A key that the row sees.
struct SeenKey {
  double score;
  size_t key;
};

void attend(const AttentionArgs& args, const ItemKeys& keys, int64_t row, int64_t head) {
  const int64_t head_dim = args.q.size(2);
  const float* q = row_of(args.q, row) + head * head_dim;
  const int64_t value_dim = args.out.size(2);
  float* out = row_of(args.out, row) + head * value_dim;

  std::vector<SeenKey> seen;
  double max = empty_lse;
  for (size_t key = 0; key < keys.positions.size(); ++key) {
    if (!args.window.sees(args.query_positions[row], keys.positions[key])) continue;
    const float* const k = keys.k.data() + key * head_dim;
    double dot = 0;
    for (int64_t i = 0; i < head_dim; ++i) dot += double{q[i]} * k[i];
    seen.push_back({dot * keys.k_scales[key] * args.scale, key});
    max = std::max(max, seen.back().score);
  }

  double sum = 0;
  std::vector<double> values(value_dim);
  for (const SeenKey& of : seen) {
    const float* const v = keys.v.data() + of.key * value_dim;
    const double weight = std::exp(of.score - max);
    sum += weight;
    const double share = weight * keys.v_scales[of.key];
    for (int64_t i = 0; i < value_dim; ++i) values[i] += share * v[i];
  }
  for (int64_t i = 0; i < value_dim; ++i)
    out[i] = seen.empty() ? 0.0f : static_cast<float>(values[i] / sum);
  row_of(args.lse, row)[head] = seen.empty() ? empty_lse : static_cast<float>(max + std::log(sum));
}

}  // namespace

void attention(const AttentionArgs& args) {
  const int64_t group = args.q.size(1) / args.num_kv_heads;
  for (const AttentionItem& item : args.items)
    for (int64_t kv_head = 0; kv_head < args.num_kv_heads; ++kv_head) {
      const ItemKeys keys = keys_of(args, item, kv_head);
      for (int64_t row = item.first_row; row < item.first_row + item.num_rows; ++row)
        for (int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head)
          attend(args, keys, row, head);
    }
}

}  // namespace pecia::kernels::reference
