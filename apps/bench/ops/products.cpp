// SPDX-License-Identifier: Apache-2.0
#include "apps/bench/ops/products.hpp"

namespace pecia::bench::ops {

Case linear(const Model& model, int64_t rows, int64_t out, int64_t in, DType dtype, int splits,
            DType result) {
  struct Inputs {
    Tensor x, weight, scales, y;
  };
  return {"linear",
          fmt::format("{} rows × {}×{} {}, {}{}{}", rows, out, in, name_of(dtype), model.name,
                      splits == 0 ? "" : fmt::format(", row invariant, splits {}", splits),
                      result == DType::fp32 ? "" : fmt::format(", to {}", name_of(result))),
          2.0 * static_cast<double>(rows) * static_cast<double>(out) * static_cast<double>(in),
          bytes_of({out, row_elements(dtype, in)}, dtype) + bytes_of({out, row_scales(dtype, in)}) +
              bytes_of({rows, in}, result) + bytes_of({rows, out}, result),
          [=](const Place& place) {
            const int64_t scales = std::max<int64_t>(1, row_scales(dtype, in));
            auto inputs =
                std::make_shared<Inputs>(Inputs{{place, result, {rows, in}},
                                                {place, dtype, {out, row_elements(dtype, in)}},
                                                {place, DType::fp32, {out, scales}},
                                                {place, result, {rows, out}}});
            return keep(inputs, [=](Inputs& i) {
              place.backend.linear({.x = i.x.view,
                                    .weight = i.weight.view,
                                    .bias = {},
                                    .y = i.y.view,
                                    .row_invariant = splits == 0 ? kernels::RowInvariant::no
                                                                 : kernels::RowInvariant::yes,
                                    .splits = std::max(1, splits),
                                    .weight_scales = scales_of(i.scales.view, dtype)},
                                   place.stream);
            });
          },
          splits > 0};
}

Case quantize_rows(const Model& model, int64_t rows, int64_t columns) {
  struct Inputs {
    Tensor x, codes, scales;
  };
  return {"quantize_rows", fmt::format("{} × {} fp32, {}", rows, columns, model.name), 0,
          bytes_of({rows, columns}) + bytes_of({rows, columns}, DType::fp8),
          [=](const Place& place) {
            auto inputs = std::make_shared<Inputs>(Inputs{{place, DType::fp32, {rows, columns}},
                                                          {place, DType::fp8, {rows, columns}},
                                                          {place, DType::fp32, {rows}}});
            return keep(inputs, [place](Inputs& i) {
              place.backend.quantize_rows({i.x.view, i.codes.view, i.scales.view}, place.stream);
            });
          }};
}

Case gated_linear(const Model& model, int64_t rows, DType dtype) {
  struct Inputs {
    Tensor x, gate, up, gate_scales, up_scales, out;
  };
  const int64_t ffn = model.ffn, hidden = model.hidden;
  return {"gated_linear",
          fmt::format("{} rows × {}×{} {}, {}", rows, ffn, hidden, name_of(dtype), model.name),
          4.0 * static_cast<double>(rows) * static_cast<double>(ffn) * static_cast<double>(hidden),
          2 * bytes_of({ffn, row_elements(dtype, hidden)}, dtype) +
              2 * bytes_of({ffn, row_scales(dtype, hidden)}) +
              bytes_of({rows, hidden}, DType::bf16) + bytes_of({rows, ffn}, DType::bf16),
          [=](const Place& place) {
            const int64_t scales = std::max<int64_t>(1, row_scales(dtype, hidden));
            const auto matrix = [&] {
              return Tensor{place, dtype, {ffn, row_elements(dtype, hidden)}};
            };
            const auto scale = [&] { return Tensor{place, DType::fp32, {ffn, scales}}; };
            auto inputs = std::make_shared<Inputs>(Inputs{{place, DType::bf16, {rows, hidden}},
                                                          matrix(),
                                                          matrix(),
                                                          scale(),
                                                          scale(),
                                                          {place, DType::bf16, {rows, ffn}}});
            return keep(inputs, [=](Inputs& i) {
              place.backend.gated_linear({.x = i.x.view,
                                          .gate = i.gate.view,
                                          .up = i.up.view,
                                          .out = i.out.view,
                                          .gate_scales = scales_of(i.gate_scales.view, dtype),
                                          .up_scales = scales_of(i.up_scales.view, dtype)},
                                         place.stream);
            });
          }};
}

}  // namespace pecia::bench::ops
