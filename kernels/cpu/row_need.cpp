// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "kernels/cpu/cpu.hpp"
#include "kernels/cpu/shared/parallel.hpp"

namespace pecia::kernels::cpu {
namespace {

float* sums_of(const TensorView& sums, int64_t row) {
  return static_cast<float*>(sums.row(row));
}

/// Adds part `part` to the sums of its row.
void see_always(const PickedParts& parts, int64_t part, const TensorView& here) {
  const float* const others = sums_of(parts.lse, part);
  float* const sums = sums_of(here, parts.rows.as<int32_t>()[part]) + parts.first_head;
  for (int64_t head = 0; head < parts.lse.size(1); ++head) {
    float& sum = sums[head];
    const float most = std::max(sum, others[head]);
    sum = most + std::log1p(std::exp(std::min(sum, others[head]) - most));
  }
}

float need_of(const float* here, const float* all, int64_t heads) {
  float need = 0;
  for (int64_t head = 0; head < heads; ++head)
    need = std::max(need, -std::expm1(here[head] - all[head]));  // never NaN
  return need;
}

}  // namespace

void row_need(const RowNeedArgs& args, const device::Stream& stream) {
  for (const PickedParts& parts : args.always)
    for_each_range(stream, parts.lse.rows(), rows_per_task(16 * parts.lse.size(1)),
                   [&](int64_t begin, int64_t end) {
                     for (int64_t part = begin; part < end; ++part)
                       see_always(parts, part, args.here);
                   });
  const int64_t heads = args.here.size(1);
  float* const need = args.need.as<float>();
  for (const LearntRows& list : args.lists)
    for_each_range(
        stream, list.rows.rows(), rows_per_task(16 * heads), [&](int64_t begin, int64_t end) {
          for (int64_t i = begin; i < end; ++i) {
            const int32_t row = list.rows.as<int32_t>()[i];
            need[row] = i < list.learnt
                            ? need_of(sums_of(args.here, row), sums_of(args.all, row), heads)
                            : need[row] * args.growth;
          }
        });
}

}  // namespace pecia::kernels::cpu
