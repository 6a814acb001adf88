#include <cmath>

#include "kernels/cpu/cpu.hpp"
#include "kernels/cpu/parallel.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/gated_activation.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
// After highway.h, which selects the target.
#include <hwy/contrib/math/math-inl.h>

HWY_BEFORE_NAMESPACE();
namespace pecia::kernels::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

void GateRows(const GatedActivationArgs& args, int64_t begin, int64_t end) {
  const hn::ScalableTag<float> d;
  const int64_t lanes = hn::Lanes(d), width = args.out.size(1);
  const auto one = hn::Set(d, 1.0f);
  // Above 88.7 the exponential is infinite, as it should be; above 104 Highway's is not defined.
  const auto limit = hn::Set(d, 104.0f);
  for (int64_t t = begin; t < end; ++t) {
    const auto* gate = static_cast<const float*>(args.gate.row(t));
    const auto* up = static_cast<const float*>(args.up.row(t));
    auto* out = static_cast<float*>(args.out.row(t));
    int64_t i = 0;
    for (; i + lanes <= width; i += lanes) {
      const auto g = hn::LoadU(d, gate + i);
      const auto exponential = hn::Exp(d, hn::Min(hn::Neg(g), limit));
      const auto silu = hn::Div(g, hn::Add(one, exponential));
      hn::StoreU(hn::Mul(silu, hn::LoadU(d, up + i)), d, out + i);
    }
    for (; i < width; ++i) out[i] = gate[i] / (1.0f + std::exp(-gate[i])) * up[i];
  }
}

}  // namespace pecia::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pecia::kernels::cpu {
HWY_EXPORT(GateRows);

void gated_activation(const GatedActivationArgs& args, const device::Stream& stream) {
  for_each_range(stream, args.out.rows(), rows_per_task(args.out.size(1)),
                 [&](int64_t begin, int64_t end) {
                   HWY_DYNAMIC_DISPATCH(GateRows)(args, begin, end);
                 });
}

}  // namespace pecia::kernels::cpu
#endif  // HWY_ONCE
