// SPDX-License-Identifier: Apache-2.0
#include "apps/bench/ops/attention.hpp"

#include <algorithm>
#include <cmath>

namespace pecia::bench::ops {

Case attention(const Model& model, int64_t rows, int64_t keys, DType dtype, DType heads,
               int64_t window) {
  const Model m = model;
  double pairs = 0;
  for (int64_t seen = keys - rows + 1; seen <= keys; ++seen)
    pairs += static_cast<double>(window > 0 ? std::min(seen, window) : seen);
  return {"attention",
          fmt::format("{} {}queries, {} keys, {}/{} heads of {} {}{}", rows,
                      heads == DType::fp32 ? "" : fmt::format("{} ", name_of(heads)), keys,
                      m.num_heads, m.num_kv_heads, m.head_dim, name_of(dtype),
                      window > 0 ? fmt::format(", window {}", window) : ""),
          4.0 * pairs * static_cast<double>(m.num_heads * m.head_dim),
          2 * vectors_bytes(m.num_kv_heads * keys, m.head_dim, dtype) +
              2 * bytes_of({rows, m.num_heads, m.head_dim}, heads),
          [=](const Place& place) {
            const Tensor q(place, heads, {rows, m.num_heads, m.head_dim});
            const Tensor k(place, dtype, {m.num_kv_heads, keys, m.head_dim});
            const Tensor v(place, dtype, {m.num_kv_heads, keys, m.head_dim});
            const Tensor scales(place, DType::fp32, {m.num_kv_heads, keys});
            const Tensor out(place, heads, {rows, m.num_heads, m.head_dim});
            const Tensor lse(place, DType::fp32, {rows, m.num_heads});
            const float* const of_keys = dtype == DType::fp8 ? scales.view.as<float>() : nullptr;
            return [=, positions = numbers_from(keys - rows, rows),
                    runs = std::vector<kernels::KeyRun>{{0, keys * m.head_dim, keys, 0}},
                    items = std::vector<kernels::AttentionItem>{{0, rows, 0, 1}}] {
              place.backend.attention({.q = q,
                                       .query_positions = positions,
                                       .items = items,
                                       .runs = runs,
                                       .keys = {k.view.data(), v.view.data(), of_keys, of_keys},
                                       .kv_dtype = dtype,
                                       .num_kv_heads = m.num_kv_heads,
                                       .scale = 1 / std::sqrt(static_cast<float>(m.head_dim)),
                                       .window = window,
                                       .out = out,
                                       .lse = lse},
                                      place.stream);
            };
          }};
}

Case rope(const Model& model, int64_t rows, kernels::RopePairs pairs, DType out) {
  const int64_t heads = model.num_heads, head_dim = model.head_dim;
  return {"rope",
          fmt::format("{} × {} heads of {}, {}{}", rows, heads, head_dim,
                      pairs == kernels::RopePairs::halves ? "halves" : "interleaved",
                      out == DType::fp32 ? "" : fmt::format(", to {}", name_of(out))),
          0,
          bytes_of({rows, heads, head_dim}) + bytes_of({rows, heads, head_dim}, out) +
              2 * bytes_of({rows, head_dim / 2}),
          [=](const Place& place) {
            const Tensor x(place, DType::fp32, {rows, heads, head_dim});
            const Tensor cos(place, DType::fp32, {rows, head_dim / 2});
            const Tensor sin(place, DType::fp32, {rows, head_dim / 2});
            const Tensor to = out == DType::fp32 ? x : Tensor(place, out, {rows, heads, head_dim});
            return [=] { place.backend.rope({x, cos, sin, pairs, to}, place.stream); };
          }};
}

Case rope_tables(const Model& model, int64_t rows) {
  const int64_t pairs = model.head_dim / 2;
  return {
      "rope_tables", fmt::format("{} × {}", rows, pairs), 0, 2 * bytes_of({rows, pairs}),
      [=](const Place& place) {
        const Tensor cos(place, DType::fp32, {rows, pairs}), sin(place, DType::fp32, {rows, pairs});
        std::vector<float> frequencies(pairs);
        for (int64_t i = 0; i < pairs; ++i)
          frequencies[i] = std::pow(5e5f, -static_cast<float>(i) / static_cast<float>(pairs));
        return [=, positions = numbers_from(100'000, rows), sets = std::vector<int32_t>(rows),
                factors = std::vector<float>{1}] {
          place.backend.rope_tables({positions, sets, frequencies, factors, cos, sin},
                                    place.stream);
        };
      }};
}

Case kv_store(const Model& model, int64_t rows, DType dtype) {
  const int64_t heads = model.num_kv_heads, head_dim = model.head_dim;
  return {"kv_store", fmt::format("{} × {} heads of {} {}", rows, heads, head_dim, name_of(dtype)),
          0, bytes_of({rows, heads, head_dim}) + vectors_bytes(rows * heads, head_dim, dtype),
          [=](const Place& place) {
            const Tensor x(place, DType::fp32, {rows, heads, head_dim});
            const Tensor cache(place, dtype, {heads, rows, head_dim});
            const Tensor scales(place, DType::fp32, {heads, rows});
            return [=, slots = numbers_from(0, rows)] {
              const TensorView of_codes = dtype == DType::fp8 ? scales.view : TensorView();
              place.backend.kv_store({x, slots, cache, of_codes}, place.stream);
            };
          }};
}

Case rotate_and_store(const Model& model, int64_t rows, DType dtype) {
  const int64_t num_heads = model.num_heads, kv_heads = model.num_kv_heads, dim = model.head_dim;
  const int64_t queries = num_heads * dim, keys = kv_heads * dim;
  return {
      "rotate_and_store",
      fmt::format("{} × {} and {} heads of {} {}", rows, num_heads, kv_heads, dim, name_of(dtype)),
      0,
      bytes_of({rows, 2 * queries + 2 * keys}) + bytes_of({rows, dim}) +
          vectors_bytes(2 * rows * kv_heads, dim, dtype),
      [=](const Place& place) {
        const Tensor heads(place, DType::fp32, {rows, queries + 2 * keys});
        const Tensor cos(place, DType::fp32, {rows, dim / 2}),
            sin(place, DType::fp32, {rows, dim / 2});
        const Tensor q_out(place, DType::fp32, {rows, num_heads, dim});
        const Tensor k(place, dtype, {kv_heads, rows, dim}), v(place, dtype, {kv_heads, rows, dim});
        return [=, slots = numbers_from(0, rows)] {
          place.backend.rotate_and_store({.q = heads.view.slice_columns(0, queries),
                                          .k = heads.view.slice_columns(queries, keys),
                                          .v = heads.view.slice_columns(queries + keys, keys),
                                          .q_norm = {},
                                          .k_norm = {},
                                          .eps = 0,
                                          .cos = cos,
                                          .sin = sin,
                                          .pairs = kernels::RopePairs::halves,
                                          .q_out = q_out,
                                          .slots = slots,
                                          .keys = {k},
                                          .values = {v}},
                                         place.stream);
        };
      }};
}

Case merge(const Model& model, int64_t rows) {
  const int64_t heads = model.num_heads, head_dim = model.head_dim;
  return {
      "merge", fmt::format("{} × {} heads of {}", rows, heads, head_dim), 0,
      3 * bytes_of({rows, heads, head_dim}) + 3 * bytes_of({rows, heads}), [=](const Place& place) {
        const auto of_heads = [&] { return Tensor(place, DType::fp32, {rows, heads, head_dim}); };
        const auto sums = [&] { return Tensor(place, DType::fp32, {rows, heads}); };
        return [=, part = of_heads(), part_lse = sums(), out = of_heads(), lse = sums()] {
          place.backend.merge({part, part_lse, {}, out, lse}, place.stream);
        };
      }};
}

}  // namespace pecia::bench::ops
