// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <vector>

#include "kernels/cpu/cpu.hpp"
#include "kernels/cpu/products/bf16_native.hpp"
#include "kernels/cpu/shared/parallel.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/gated_activation.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
// After highway.h, which selects the target.
#include <hwy/contrib/math/math-inl.h>

HWY_BEFORE_NAMESPACE();
namespace pecia::kernels::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using Kind = Activation::Kind;

template <Kind kind, class D, class V = hn::Vec<D>>
HWY_INLINE V gated(D d, V gate, V up, const Activation& activation) {
  if constexpr (kind == Kind::relu) {
    const V zero = hn::Zero(d);
    return hn::Mul(hn::IfThenElse(hn::Lt(gate, zero), zero, gate), up);  // Max may lose NaN
  }
  V slope = gate;
  if constexpr (kind == Kind::clamped) {
    const V limit = hn::Set(d, activation.limit), low = hn::Set(d, -activation.limit);
    gate = hn::IfThenElse(hn::Gt(gate, limit), limit, gate);  // Min may lose NaN
    up = hn::IfThenElse(hn::Gt(up, limit), limit, up);
    up = hn::Add(hn::IfThenElse(hn::Lt(up, low), low, up), hn::Set(d, 1.0f));
    slope = hn::Mul(gate, hn::Set(d, activation.slope));
  }
  if constexpr (kind == Kind::gelu_tanh) {
    const V cube = hn::Mul(hn::Mul(hn::Mul(gate, gate), gate), hn::Set(d, gelu_cube));
    slope = hn::Mul(hn::Add(gate, cube), hn::Set(d, gelu_slope));
  }
  // Above 88.7 the exponential is infinite, as it should be; above 104 Highway's is not defined.
  const V exponential = hn::Exp(d, hn::Min(hn::Neg(slope), hn::Set(d, 104.0f)));
  if constexpr (kind == Kind::sigmoid)
    gate = hn::IfThenElse(hn::IsNaN(gate), gate, hn::Set(d, 1.0f));
  return hn::Mul(hn::Div(gate, hn::Add(hn::Set(d, 1.0f), exponential)), up);
}

/// The last columns are computed as vectors too: a column's bits do not depend on where it stands.
template <Kind kind>
HWY_INLINE void gate_some(const float* gate, const float* up, int64_t count,
                          const Activation& activation, float* out) {
  const hn::ScalableTag<float> d;
  constexpr int64_t lanes = hn::MaxLanes(d);
  const int64_t whole = count / lanes * lanes;
  for (int64_t i = 0; i < whole; i += lanes)
    hn::StoreU(gated<kind>(d, hn::LoadU(d, gate + i), hn::LoadU(d, up + i), activation), d,
               out + i);
  if (whole == count) return;
  HWY_ALIGN float last_gate[lanes] = {}, last_up[lanes] = {};
  std::copy(gate + whole, gate + count, last_gate);
  std::copy(up + whole, up + count, last_up);
  hn::Store(gated<kind>(d, hn::Load(d, last_gate), hn::Load(d, last_up), activation), d, last_gate);
  std::copy_n(last_gate, count - whole, out + whole);
}

/// The same, rounded.
template <Kind kind>
void gate_to_bf16(const float* gate, const float* up, int64_t count, const Activation& activation,
                  uint16_t* out) {
  constexpr int64_t piece = 256;
  HWY_ALIGN float wide[piece];
  for (int64_t i = 0; i < count; i += piece) {
    const int64_t some = std::min(piece, count - i);
    gate_some<kind>(gate + i, up + i, some, activation, wide);
    store_bf16_native(wide, some, out + i);
  }
}

template <Kind kind>
void gate_rows(const GatedActivationArgs& args, int64_t begin, int64_t end) {
  const int64_t width = args.out.size(1);
  std::vector<float> same;  // a row's gate, where it is one number
  for (int64_t t = begin; t < end; ++t) {
    const auto* gate = static_cast<const float*>(args.gate.row(t));
    if (args.gate.size(1) != width) {
      same.assign(width, *gate);
      gate = same.data();
    }
    const auto* up = static_cast<const float*>(args.up.row(t));
    if (args.out.dtype() == DType::bf16)
      gate_to_bf16<kind>(gate, up, width, args.activation, static_cast<uint16_t*>(args.out.row(t)));
    else
      gate_some<kind>(gate, up, width, args.activation, static_cast<float*>(args.out.row(t)));
  }
}

void GateRows(const GatedActivationArgs& args, int64_t begin, int64_t end) {
  switch (args.activation.kind) {
    case Kind::silu:
      return gate_rows<Kind::silu>(args, begin, end);
    case Kind::gelu_tanh:
      return gate_rows<Kind::gelu_tanh>(args, begin, end);
    case Kind::clamped:
      return gate_rows<Kind::clamped>(args, begin, end);
    case Kind::sigmoid:
      return gate_rows<Kind::sigmoid>(args, begin, end);
    case Kind::relu:
      return gate_rows<Kind::relu>(args, begin, end);
  }
}

}  // namespace pecia::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pecia::kernels::cpu {
HWY_EXPORT(GateRows);

void gated_activation_of_rows(const GatedActivationArgs& args, int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(GateRows)(args, begin, end);
}

void gated_activation(const GatedActivationArgs& args, const device::Stream& stream) {
  for_each_range(stream, args.out.rows(), rows_per_task(args.out.size(1)),
                 [&](int64_t begin, int64_t end) { gated_activation_of_rows(args, begin, end); });
}

}  // namespace pecia::kernels::cpu
#endif  // HWY_ONCE
