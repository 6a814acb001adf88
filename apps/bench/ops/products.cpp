// SPDX-License-Identifier: Apache-2.0
#include "apps/bench/ops/products.hpp"

#include <memory>

#include "lib/settle/measure/own_panels.hpp"

namespace pecia::bench::ops {

Case linear(const Model& model, int64_t rows, int64_t out, int64_t in, DType dtype, int splits,
            DType result, Packed packed) {
  return {"linear",
          fmt::format("{} rows × {}×{} {}, {}{}{}{}", rows, out, in, name_of(dtype), model.name,
                      splits == 0 ? "" : fmt::format(", row invariant, splits {}", splits),
                      result == DType::fp32 ? "" : fmt::format(", to {}", name_of(result)),
                      packed == Packed::no ? "" : ", in panels"),
          2.0 * static_cast<double>(rows) * static_cast<double>(out) * static_cast<double>(in),
          bytes_of({out, row_bytes(dtype, in)}, DType::uint8) + bytes_of({rows, in}, result) +
              bytes_of({rows, out}, result),
          [=](const Place& place) {
            const Tensor x(place, result, {rows, in}), y(place, result, {rows, out});
            const Tensor weight(place, dtype, {out, row_elements(dtype, in)});
            const Tensor scales(place, scale_type(dtype),
                                {out, std::max<int64_t>(1, row_scales(dtype, in))});
            const auto panels = packed == Packed::no ? nullptr
                                                     : std::make_shared<measure::OwnPanels>(
                                                           place.backend, place.stream, weight);
            return [=, panels = panels] {
              place.backend.linear({.x = x,
                                    .weight = weight,
                                    .bias = {},
                                    .y = y,
                                    .row_invariant = splits == 0 ? kernels::RowInvariant::no
                                                                 : kernels::RowInvariant::yes,
                                    .splits = std::max(1, splits),
                                    .weight_scales = scales_of(scales, dtype)},
                                   place.stream);
            };
          },
          splits > 0};
}

Case head_linear(int64_t rows, int64_t heads, int64_t out, int64_t in) {
  const DType dtype = DType::bf16;
  return {"head_linear",
          fmt::format("{} rows × {} heads of {}×{} {}", rows, heads, out, in, name_of(dtype)),
          2.0 * static_cast<double>(rows * heads) * static_cast<double>(out * in),
          bytes_of({heads * out, in}, dtype) + bytes_of({rows, heads * in}) +
              bytes_of({rows, heads * out}),
          [=](const Place& place) {
            const Tensor x(place, DType::fp32, {rows, heads * in});
            const Tensor y(place, DType::fp32, {rows, heads * out});
            const Tensor weight(place, dtype, {heads * out, in});
            return [=] {
              const TensorView all_x = x, all_y = y;
              place.backend.head_linear({.heads = heads,
                                         .x = all_x.slice_columns(0, in),
                                         .x_step = in,
                                         .weight = weight,
                                         .y = all_y.slice_columns(0, out),
                                         .y_step = out},
                                        place.stream);
            };
          }};
}

Case quantize_rows(const Model& model, int64_t rows, int64_t columns) {
  return {"quantize_rows", fmt::format("{} × {} fp32, {}", rows, columns, model.name), 0,
          bytes_of({rows, columns}) + bytes_of({rows, columns}, DType::fp8),
          [=](const Place& place) {
            const Tensor x(place, DType::fp32, {rows, columns}), scales(place, DType::fp32, {rows});
            const Tensor codes(place, DType::fp8, {rows, columns});
            return [=] { place.backend.quantize_rows({x, codes, scales}, place.stream); };
          }};
}

Case gated_linear(const Model& model, int64_t rows, DType dtype) {
  const int64_t ffn = model.ffn, hidden = model.hidden;
  return {
      "gated_linear",
      fmt::format("{} rows × {}×{} {}, {}", rows, ffn, hidden, name_of(dtype), model.name),
      4.0 * static_cast<double>(rows) * static_cast<double>(ffn) * static_cast<double>(hidden),
      2 * bytes_of({ffn, row_elements(dtype, hidden)}, dtype) +
          2 * bytes_of({ffn, row_scales(dtype, hidden)}) + bytes_of({rows, hidden}, DType::bf16) +
          bytes_of({rows, ffn}, DType::bf16),
      [=](const Place& place) {
        const Tensor x(place, DType::bf16, {rows, hidden}), out(place, DType::bf16, {rows, ffn});
        const auto matrix = [&] {
          return Tensor(place, dtype, {ffn, row_elements(dtype, hidden)});
        };
        const auto scales = [&] {
          return Tensor(place, DType::fp32, {ffn, std::max<int64_t>(1, row_scales(dtype, hidden))});
        };
        return [=, gate = matrix(), up = matrix(), of_gate = scales(), of_up = scales()] {
          place.backend.gated_linear({.x = x,
                                      .gate = gate,
                                      .up = up,
                                      .out = out,
                                      .gate_scales = scales_of(of_gate, dtype),
                                      .up_scales = scales_of(of_up, dtype)},
                                     place.stream);
        };
      }};
}

}  // namespace pecia::bench::ops
