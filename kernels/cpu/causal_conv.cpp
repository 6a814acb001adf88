// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "kernels/cpu/cpu.hpp"
#include "kernels/cpu/shared/parallel.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/causal_conv.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
// After highway.h, which selects the target.
#include <hwy/contrib/math/math-inl.h>

HWY_BEFORE_NAMESPACE();
namespace pecia::kernels::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// Some neighbouring channels of an item, row after row. A row's last channels are computed as
/// vectors too: a channel's bits do not depend on where it stands.
class ConvStrip {
  static constexpr hn::ScalableTag<float> d{};
  using V = hn::Vec<decltype(d)>;
  static constexpr int64_t lanes = hn::MaxLanes(d);

 public:
  /// Channels of a task: enough to read some lines of memory at once.
  static constexpr int64_t width = 128;

  ConvStrip(const CausalConvArgs& args, const StateRows& item, int64_t first)
      : args_(args),
        item_(item),
        first_(first),
        count_(std::min(width, args.x.size(1) - first)),
        kept_(args.kept_rows()) {
    for (int64_t i = 0; i < count_; ++i) {
      const auto* const weight = static_cast<const float*>(args.weight.row(first + i));
      for (int64_t j = 0; j <= kept_; ++j) weights_[j][i] = weight[j];
      if (args.bias) bias_[i] = args.bias.as<float>()[first + i];
    }
  }

  void run() {
    const float* seen[most_conv_taps];
    for (int64_t t = 0; t < item_.num_rows; ++t) {
      for (int64_t j = 0; j <= kept_; ++j) seen[j] = row(t - kept_ + j);
      auto* const out = static_cast<float*>(args_.out.row(item_.first_row + t)) + first_;
      const int64_t whole = count_ / lanes * lanes;
      for (int64_t i = 0; i < whole; i += lanes) hn::StoreU(convolved<true>(seen, i), d, out + i);
      if (whole < count_)
        hn::BlendedStore(convolved<false>(seen, whole), rest(whole), d, out + whole);
    }
    if (item_.num_rows == 0) return;
    for (int64_t j = 0; j < kept_; ++j)
      std::copy_n(row(item_.num_rows - kept_ + j), count_, tail_row(j));
  }

 private:
  float* tail_row(int64_t j) const {
    return static_cast<float*>(args_.tails.row(item_.state * kept_ + j)) + first_;
  }
  /// Those before the first row are in the tail.
  const float* row(int64_t t) const {
    return t >= 0 ? static_cast<const float*>(args_.x.row(item_.first_row + t)) + first_
                  : tail_row(kept_ + t);
  }

  /// The channels from the i-th on, where these are no whole vector.
  hn::Mask<decltype(d)> rest(int64_t i) const {
    return hn::FirstN(d, static_cast<size_t>(count_ - i));
  }

  /// Of the channels from the i-th on, in the rows that are seen.
  template <bool whole>
  HWY_INLINE V convolved(const float* const* seen, int64_t i) const {
    V sum = hn::Load(d, bias_ + i);
    for (int64_t j = 0; j <= kept_; ++j) {
      V x;
      if constexpr (whole)
        x = hn::LoadU(d, seen[j] + i);
      else
        x = hn::MaskedLoad(rest(i), d, seen[j] + i);
      sum = hn::MulAdd(hn::Load(d, weights_[j] + i), x, sum);
    }
    // Above 104 Highway's exponential is not defined, and it is infinite from 88.7 on.
    const V exponential = hn::Exp(d, hn::Min(hn::Neg(sum), hn::Set(d, 104.0f)));
    return hn::Div(sum, hn::Add(exponential, hn::Set(d, 1.0f)));
  }

  const CausalConvArgs& args_;
  const StateRows& item_;
  int64_t first_, count_, kept_;
  HWY_ALIGN float weights_[most_conv_taps][width] = {};
  HWY_ALIGN float bias_[width] = {};
};

int64_t StripWidth() {
  return ConvStrip::width;
}

void ConvolveStrip(const CausalConvArgs& args, const StateRows& item, int64_t first) {
  ConvStrip(args, item, first).run();
}

}  // namespace pecia::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pecia::kernels::cpu {
HWY_EXPORT(StripWidth);
HWY_EXPORT(ConvolveStrip);

void causal_conv(const CausalConvArgs& args, const device::Stream& stream) {
  const int64_t width = HWY_DYNAMIC_DISPATCH(StripWidth)();
  const int64_t strips = (args.x.size(1) + width - 1) / width;
  for_each_task(stream, static_cast<int64_t>(args.items.size()) * strips,
                [&](int64_t task, const Worker&) {
                  HWY_DYNAMIC_DISPATCH(ConvolveStrip)
                  (args, args.items[task / strips], task % strips * width);
                });
}

}  // namespace pecia::kernels::cpu
#endif  // HWY_ONCE
