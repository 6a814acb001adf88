// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "kernels/cpu/cpu.hpp"
#include "kernels/cpu/shared/parallel.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/column_sums.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/cpu/shared/exp-inl.hpp"
#include "kernels/cpu/shared/widen-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace pecia::kernels::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr int64_t keys_at_once = 64;

/// Up to keys_at_once keys of one KV head, element by element: turned[i · keys_at_once + s].
void TurnKeys(const ColumnSumsArgs& args, int64_t kv_head, int64_t first, int64_t count, float* row,
              float* turned) {
  const int64_t head_dim = args.q.size(2);
  const int64_t begin = args.run.offset + kv_head * args.run.head_stride;
  with_stored_type(args.kv_dtype, [&]<class Stored>(std::type_identity<Stored>) {
    const auto* k = static_cast<const Stored*>(args.keys.k) + begin;
    for (int64_t s = 0; s < count; ++s) {
      widen_row(k + (first + s) * head_dim, head_dim, row);
      const float scale =
          args.keys.k_scales ? args.keys.k_scales[begin / head_dim + first + s] : 1.0f;
      for (int64_t i = 0; i < head_dim; ++i) turned[i * keys_at_once + s] = row[i] * scale;
    }
  });
  for (int64_t i = 0; i < head_dim; ++i)
    std::fill(turned + i * keys_at_once + count, turned + (i + 1) * keys_at_once, 0.0f);
}

/// sums[s] += exp(q · key s − lse) for the keys that the row sees.
void AddRow(const float* q, int64_t head_dim, float scale, float lse, const float* turned,
            const float* seen, float* sums) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t s = 0; s < keys_at_once; s += lanes) {
    auto dot = hn::Zero(d);
    for (int64_t i = 0; i < head_dim; ++i)
      dot = hn::MulAdd(hn::Set(d, q[i]), hn::Load(d, turned + i * keys_at_once + s), dot);
    // No score is above its row's lse, but for rounding.
    const auto share = exp_nonpositive(d, hn::MulSub(dot, hn::Set(d, scale), hn::Set(d, lse)));
    const auto counts = hn::Ne(hn::Load(d, seen + s), hn::Zero(d));
    hn::Store(hn::Add(hn::Load(d, sums + s), hn::IfThenElseZero(counts, share)), d, sums + s);
  }
}

}  // namespace pecia::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pecia::kernels::cpu {
HWY_EXPORT(TurnKeys);
HWY_EXPORT(AddRow);

namespace {

constexpr int64_t keys_at_once = 64;

/// The sums of one KV head's query heads for some keys.
void sum_keys(const ColumnSumsArgs& args, int64_t kv_head, int64_t first, Carver scratch) {
  const int64_t num_heads = args.q.size(1), head_dim = args.q.size(2);
  const int64_t group = num_heads / args.num_kv_heads;
  const int64_t count = std::min(keys_at_once, args.run.num_keys - first);
  float* const row = scratch.take<float>(head_dim);
  float* const turned = scratch.take<float>(head_dim * keys_at_once);
  float* const seen = scratch.take<float>(keys_at_once);
  float* const sums = scratch.take<float>(group * keys_at_once);
  HWY_DYNAMIC_DISPATCH(TurnKeys)(args, kv_head, first, count, row, turned);
  std::fill_n(sums, group * keys_at_once, 0.0f);
  std::fill_n(seen, keys_at_once, 0.0f);
  for (int64_t t = 0; t < args.q.rows(); ++t) {
    const int64_t query = args.query_positions[t];
    bool any = false;
    for (int64_t s = 0; s < count; ++s) {
      const int64_t key = args.run.position_of(first + s);
      const bool sees = args.window.sees(query, key);
      seen[s] = sees ? 1.0f : 0.0f;
      any = any || sees;
    }
    if (!any) continue;
    const auto* q = static_cast<const float*>(args.q.row(t)) + kv_head * group * head_dim;
    const auto* lse = static_cast<const float*>(args.lse.row(t)) + kv_head * group;
    for (int64_t g = 0; g < group; ++g) {
      if (lse[g] == empty_lse) continue;
      float* const to = sums + g * keys_at_once;
      HWY_DYNAMIC_DISPATCH(AddRow)
      (q + g * head_dim, head_dim, args.scale, lse[g], turned, seen, to);
    }
  }
  float* const to = static_cast<float*>(args.sums.row(kv_head)) + first;
  std::fill_n(to, count, 0.0f);
  for (int64_t g = 0; g < group; ++g)
    for (int64_t s = 0; s < count; ++s)
      if (const float sum = sums[g * keys_at_once + s]; sum > 0) to[s] += sum;  // never NaN
}

}  // namespace

void column_sums(const ColumnSumsArgs& args, const device::Stream& stream, Workspace& workspace) {
  const int64_t head_dim = args.q.size(2), group = args.q.size(1) / args.num_kv_heads;
  const int64_t blocks = (args.run.num_keys + keys_at_once - 1) / keys_at_once;
  workspace.reserve_threads(
      stream.num_threads(),
      Carver::bytes_of<float>(head_dim) + Carver::bytes_of<float>(head_dim * keys_at_once) +
          Carver::bytes_of<float>(keys_at_once) + Carver::bytes_of<float>(group * keys_at_once));
  for_each_task(stream, blocks * args.num_kv_heads, [&](int64_t task, const Worker& worker) {
    sum_keys(args, task / blocks, task % blocks * keys_at_once, workspace.of_thread(worker.thread));
  });
}

}  // namespace pecia::kernels::cpu
#endif  // HWY_ONCE
