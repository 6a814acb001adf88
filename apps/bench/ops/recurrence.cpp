// SPDX-License-Identifier: Apache-2.0
#include "apps/bench/ops/recurrence.hpp"

#include <cmath>

namespace pecia::bench::ops {
namespace {

std::vector<kernels::StateRows> items_of(int64_t sequences, int64_t rows) {
  std::vector<kernels::StateRows> items;
  for (int64_t i = 0; i < sequences; ++i) items.push_back({i * rows, rows, i});
  return items;
}

float positive(float value) {
  return std::abs(value);
}

}  // namespace

Case causal_conv(const RecurrentLayer& layer, int64_t sequences, int64_t rows) {
  const int64_t channels = layer.channels(), taps = layer.taps, kept = taps - 1;
  return {"causal_conv",
          fmt::format("{} × {} rows of {}, {} taps", sequences, rows, channels, taps), 0,
          2 * bytes_of({sequences, rows + kept, channels}) + bytes_of({channels, taps}),
          [=](const Place& place) {
            const Tensor x(place, DType::fp32, {sequences * rows, channels});
            const Tensor out(place, DType::fp32, {sequences * rows, channels});
            const Tensor tails(place, DType::fp32, {sequences * kept, channels});
            const Tensor weight(place, DType::fp32, {channels, taps});
            return [=, items = items_of(sequences, rows)] {
              place.backend.causal_conv({x, weight, {}, items, tails, out}, place.stream);
            };
          }};
}

Case recurrence_gates(const RecurrentLayer& layer, int64_t rows) {
  const int64_t heads = layer.heads;
  return {"recurrence_gates", fmt::format("{} × {} heads", rows, heads), 0,
          4 * bytes_of({rows, heads}), [=](const Place& place) {
            const Tensor a(place, DType::fp32, {rows, heads}), b(place, DType::fp32, {rows, heads});
            const Tensor decay(place, DType::fp32, {rows, heads});
            const Tensor strength(place, DType::fp32, {rows, heads});
            const Tensor rate(place, DType::fp32, {heads}), bias(place, DType::fp32, {heads});
            return [=] {
              place.backend.recurrence_gates({a, b, rate, bias, decay, strength}, place.stream);
            };
          }};
}

Case recurrence(const RecurrentLayer& layer, int64_t sequences, int64_t rows) {
  const bool corrects = layer.corrects;
  const int64_t key_heads = layer.key_heads, key_dim = layer.key_dim;
  const int64_t heads = layer.heads, value_dim = layer.value_dim;
  const int64_t all = sequences * rows;
  return {"recurrence",
          fmt::format("{} × {} rows, {}/{} heads of {} × {}{}", sequences, rows, heads, key_heads,
                      key_dim, value_dim, corrects ? ", corrected" : ""),
          (corrects ? 6.0 : 4.0) * static_cast<double>(all * heads * key_dim * value_dim),
          2 * bytes_of({sequences, heads, key_dim, value_dim}) +
              2 * bytes_of({all, key_heads * key_dim + heads * value_dim + heads}),
          [=](const Place& place) {
            const float length = std::sqrt(static_cast<float>(key_dim));
            const Tensor q(place, DType::fp32, {all, key_heads, key_dim});
            const Tensor k(place, DType::fp32, {all, key_heads, key_dim},
                           [=](float value) { return value / length; });
            const Tensor v(place, DType::fp32, {all, heads, value_dim});
            const Tensor decay(place, DType::fp32, {all, heads},
                               [](float value) { return -positive(value); });
            const Tensor strength(place, DType::fp32, {all, heads}, positive);
            const Tensor states(place, DType::fp32, {sequences, heads, key_dim, value_dim});
            const Tensor out(place, DType::fp32, {all, heads, value_dim});
            return [=, items = items_of(sequences, rows)] {
              kernels::RecurrenceArgs args{q, k, v, decay, strength, corrects, items, states, out};
              args.products = place.backend.operand_type(DType::bf16);
              place.backend.recurrence(args, place.stream);
            };
          }};
}

}  // namespace pecia::bench::ops
