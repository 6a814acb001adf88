// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>

#include "kernels/cpu/cpu.hpp"
#include "kernels/cpu/shared/parallel.hpp"

namespace pecia::kernels::cpu {
namespace {

void copy_row(const SumRowsArgs& args, int64_t t) {
  const int64_t bytes = args.out.size(1) * size_of(args.out.dtype());
  const int32_t from = args.which[t];
  if (from < 0)
    std::memset(args.out.row(t), 0, bytes);
  else
    std::memcpy(args.out.row(t), args.x.row(from), bytes);
}

void add_rows(const SumRowsArgs& args, int64_t t) {
  const int64_t width = args.out.size(1), terms = args.terms();
  const auto which = args.which.subspan(t * terms, terms);
  auto* const out = static_cast<float*>(args.out.row(t));
  const bool adds = args.accumulate == Accumulate::yes;
  const bool largest = args.combine == CombineRows::largest;
  constexpr int64_t piece = 256;
  float sums[piece];  // the whole sum is added to out at once, as its order says
  for (int64_t begin = 0; begin < width; begin += piece) {
    const int64_t count = std::min(piece, width - begin);
    std::fill_n(sums, count, 0.0f);
    for (const int32_t from : which) {
      if (from < 0) continue;
      const float* const row = static_cast<const float*>(args.x.row(from)) + begin;
      if (largest)
        for (int64_t i = 0; i < count; ++i) sums[i] = std::max(sums[i], row[i]);
      else
        for (int64_t i = 0; i < count; ++i) sums[i] += row[i];
    }
    for (int64_t i = 0; i < count; ++i) out[begin + i] = adds ? out[begin + i] + sums[i] : sums[i];
  }
}

}  // namespace

void sum_rows(const SumRowsArgs& args, const device::Stream& stream) {
  const bool copies =
      args.terms() == 1 && args.accumulate == Accumulate::no && args.combine == CombineRows::sum;
  const int64_t work = args.out.size(1) * std::max<int64_t>(1, args.terms());
  for_each_range(stream, args.out.rows(), rows_per_task(work), [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) copies ? copy_row(args, t) : add_rows(args, t);
  });
}

}  // namespace pecia::kernels::cpu
