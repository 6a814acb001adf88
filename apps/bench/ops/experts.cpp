// SPDX-License-Identifier: Apache-2.0
#include "apps/bench/ops/experts.hpp"

#include <vector>

namespace pecia::bench::ops {
namespace {

/// Matrices of one kind of all experts, one below the other.
class Matrices {
 public:
  Matrices(const Place& place, DType dtype, int64_t experts, int64_t out, int64_t in)
      : out_(out),
        weights_(place, dtype, {experts * out, row_elements(dtype, in)}),
        scales_(place, is_code(dtype) ? scale_type(dtype) : DType::fp32,
                {experts * out, std::max<int64_t>(1, row_scales(dtype, in))},
                [](float) { return 1.27f; }) {}  // as a byte 127, which is 2⁰ for mxfp4

  TensorView of(int64_t expert) const { return weights_.view.slice_rows(expert * out_, out_); }
  TensorView scales_of(int64_t expert) const {
    if (!is_code(weights_.view.dtype())) return {};
    const TensorView own = scales_.view.slice_rows(expert * out_, out_);
    const DType type = weights_.view.dtype();  // fp8 is of model.dtype: fp8
    return type == DType::int8 || type == DType::fp8 ? own.reshape({out_}) : own;
  }

 private:
  int64_t out_;
  Tensor weights_, scales_;
};

/// Rows that choose all experts alike: row t chooses k neighbours from number t · k on.
Tensor even_choice(const Place& place, int64_t rows, const Mixture& mixture) {
  Tensor chosen(place, DType::int32, {rows, mixture.k}, [](float) { return 0.0f; });
  Buffer host(chosen.view.elements() * size_of(DType::int32));
  for (int64_t i = 0; i < chosen.view.elements(); ++i)
    host.as<int32_t>()[i] = static_cast<int32_t>(i % mixture.experts);
  place.device.copy(chosen.view.data(), host.data(), host.bytes(), place.stream);
  place.stream.synchronize();
  return chosen;
}

std::function<void()> call_of(const Mixture& mixture, int64_t rows, DType dtype,
                              const Place& place) {
  const auto [name, hidden, ffn, count, k] = mixture;
  const Tensor x(place, DType::bf16, {rows, hidden}), y(place, DType::fp32, {rows, hidden});
  const Tensor chosen = even_choice(place, rows, mixture);
  const Tensor weights(place, DType::fp32, {rows, k});
  const Matrices gates(place, dtype, count, ffn, hidden), ups(place, dtype, count, ffn, hidden);
  const Matrices downs(place, dtype, count, hidden, ffn);
  std::vector<kernels::Expert> all;
  for (int64_t e = 0; e < count; ++e)
    all.push_back({.gate = gates.of(e),
                   .up = ups.of(e),
                   .down = downs.of(e),
                   .gate_scales = gates.scales_of(e),
                   .up_scales = ups.scales_of(e),
                   .down_scales = downs.scales_of(e)});
  // The matrices are captured for their memory.
  return [x, y, chosen, weights, gates, ups, downs, all, place] {
    place.backend.experts({.x = x, .chosen = chosen, .weights = weights, .experts = all, .y = y},
                          place.stream);
  };
}

}  // namespace

Case experts(const Mixture& mixture, int64_t rows, DType dtype) {
  const auto [name, hidden, ffn, count, k] = mixture;
  const int64_t touched = std::min(rows * k, count);
  return {
      "experts",
      fmt::format("{} rows × {} of {} × {}×{} {}, {}", rows, k, count, ffn, hidden, name_of(dtype),
                  name),
      6.0 * static_cast<double>(rows * k) * static_cast<double>(ffn) * static_cast<double>(hidden),
      bytes_of({touched, 2 * ffn, row_bytes(dtype, hidden)}, DType::uint8) +
          bytes_of({touched, hidden, row_bytes(dtype, ffn)}, DType::uint8) +
          bytes_of({rows, hidden}, DType::bf16) + bytes_of({rows, hidden}),
      [=](const Place& place) { return call_of(mixture, rows, dtype, place); }};
}

}  // namespace pecia::bench::ops
