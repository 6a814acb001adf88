// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/cpu.hpp"
#include "kernels/cpu/shared/parallel.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/square_sums.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace pecia::kernels::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

void SquareSums(const SquareSumsArgs& args, int64_t begin, int64_t end) {
  const hn::ScalableTag<float> d;
  const int64_t lanes = hn::Lanes(d), heads = args.x.size(1), head_dim = args.x.size(2);
  for (int64_t row = begin; row < end; ++row)
    for (int64_t head = 0; head < heads; ++head) {
      const float* x = static_cast<const float*>(args.x.row(row)) + head * head_dim;
      auto squares = hn::Zero(d);
      int64_t i = 0;
      for (; i + lanes <= head_dim; i += lanes) {
        const auto some = hn::LoadU(d, x + i);
        squares = hn::MulAdd(some, some, squares);
      }
      float sum = hn::GetLane(hn::SumOfLanes(d, squares));
      for (; i < head_dim; ++i) sum += x[i] * x[i];
      static_cast<float*>(args.sums.row(row))[head] = sum;
    }
}

}  // namespace pecia::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pecia::kernels::cpu {
HWY_EXPORT(SquareSums);

void square_sums(const SquareSumsArgs& args, const device::Stream& stream) {
  for_each_range(stream, args.x.rows(), rows_per_task(args.x.row_elements()),
                 [&](int64_t begin, int64_t end) {
                   HWY_DYNAMIC_DISPATCH(SquareSums)(args, begin, end);
                 });
}

}  // namespace pecia::kernels::cpu
#endif  // HWY_ONCE
