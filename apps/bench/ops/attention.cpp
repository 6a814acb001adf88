// SPDX-License-Identifier: Apache-2.0
#include "apps/bench/ops/attention.hpp"

#include <cmath>
#include <numeric>

namespace pecia::bench::ops {

Case attention(const Model& model, int64_t rows, int64_t keys, DType dtype, DType heads) {
  struct Inputs {
    Tensor q, k, v, scales, out, lse;
    std::vector<int64_t> query_positions;
    std::vector<kernels::KeyRun> runs;
    std::vector<kernels::AttentionItem> items;
  };
  const Model m = model;
  const double pairs = static_cast<double>(rows) *
                       (static_cast<double>(keys - rows) + static_cast<double>(rows + 1) / 2);
  return {"attention",
          fmt::format("{} {}queries, {} keys, {}/{} heads of {} {}", rows,
                      heads == DType::fp32 ? "" : fmt::format("{} ", name_of(heads)), keys,
                      m.num_heads, m.num_kv_heads, m.head_dim, name_of(dtype)),
          4.0 * pairs * static_cast<double>(m.num_heads * m.head_dim),
          2 * vectors_bytes(m.num_kv_heads * keys, m.head_dim, dtype) +
              2 * bytes_of({rows, m.num_heads, m.head_dim}, heads),
          [=](const Place& place) {
            auto inputs =
                std::make_shared<Inputs>(Inputs{{place, heads, {rows, m.num_heads, m.head_dim}},
                                                {place, dtype, {m.num_kv_heads, keys, m.head_dim}},
                                                {place, dtype, {m.num_kv_heads, keys, m.head_dim}},
                                                {place, DType::fp32, {m.num_kv_heads, keys}},
                                                {place, heads, {rows, m.num_heads, m.head_dim}},
                                                {place, DType::fp32, {rows, m.num_heads}},
                                                std::vector<int64_t>(rows),
                                                {{0, keys * m.head_dim, keys, 0}},
                                                {{0, rows, 0, 1}}});
            std::iota(inputs->query_positions.begin(), inputs->query_positions.end(), keys - rows);
            return keep(inputs, [place, m, dtype](Inputs& i) {
              const float* scales = dtype == DType::fp8 ? i.scales.view.as<float>() : nullptr;
              place.backend.attention({.q = i.q.view,
                                       .query_positions = i.query_positions,
                                       .items = i.items,
                                       .runs = i.runs,
                                       .keys = {i.k.view.data(), i.v.view.data(), scales, scales},
                                       .kv_dtype = dtype,
                                       .num_kv_heads = m.num_kv_heads,
                                       .scale = 1 / std::sqrt(static_cast<float>(m.head_dim)),
                                       .out = i.out.view,
                                       .lse = i.lse.view},
                                      place.stream);
            });
          }};
}

Case rope(const Model& model, int64_t rows, kernels::RopePairs pairs, DType out) {
  struct Inputs {
    Tensor x, cos, sin, out;
  };
  const int64_t heads = model.num_heads, head_dim = model.head_dim;
  return {"rope",
          fmt::format("{} × {} heads of {}, {}{}", rows, heads, head_dim,
                      pairs == kernels::RopePairs::halves ? "halves" : "interleaved",
                      out == DType::fp32 ? "" : fmt::format(", to {}", name_of(out))),
          0,
          bytes_of({rows, heads, head_dim}) + bytes_of({rows, heads, head_dim}, out) +
              2 * bytes_of({rows, head_dim / 2}),
          [=](const Place& place) {
            auto inputs =
                std::make_shared<Inputs>(Inputs{{place, DType::fp32, {rows, heads, head_dim}},
                                                {place, DType::fp32, {rows, head_dim / 2}},
                                                {place, DType::fp32, {rows, head_dim / 2}},
                                                {place, out, {rows, heads, head_dim}}});
            return keep(inputs, [place, pairs, out](Inputs& i) {
              const TensorView& to = out == DType::fp32 ? i.x.view : i.out.view;
              place.backend.rope({i.x.view, i.cos.view, i.sin.view, pairs, to}, place.stream);
            });
          }};
}

Case rope_tables(const Model& model, int64_t rows) {
  struct Inputs {
    Tensor cos, sin;
    std::vector<int64_t> positions;
    std::vector<int32_t> sets;
    std::vector<float> frequencies, factors;
  };
  const int64_t pairs = model.head_dim / 2;
  return {"rope_tables", fmt::format("{} × {}", rows, pairs), 0, 2 * bytes_of({rows, pairs}),
          [=](const Place& place) {
            auto inputs = std::make_shared<Inputs>(Inputs{{place, DType::fp32, {rows, pairs}},
                                                          {place, DType::fp32, {rows, pairs}},
                                                          std::vector<int64_t>(rows),
                                                          std::vector<int32_t>(rows, 0),
                                                          std::vector<float>(pairs),
                                                          {1}});
            std::iota(inputs->positions.begin(), inputs->positions.end(), int64_t{100'000});
            for (int64_t i = 0; i < pairs; ++i)
              inputs->frequencies[i] =
                  std::pow(5e5f, -static_cast<float>(i) / static_cast<float>(pairs));
            return keep(inputs, [place](Inputs& i) {
              place.backend.rope_tables(
                  {i.positions, i.sets, i.frequencies, i.factors, i.cos.view, i.sin.view},
                  place.stream);
            });
          }};
}

Case kv_store(const Model& model, int64_t rows, DType dtype) {
  struct Inputs {
    Tensor x, cache, scales;
    std::vector<int64_t> slots;
  };
  const int64_t heads = model.num_kv_heads, head_dim = model.head_dim;
  return {"kv_store", fmt::format("{} × {} heads of {} {}", rows, heads, head_dim, name_of(dtype)),
          0, bytes_of({rows, heads, head_dim}) + vectors_bytes(rows * heads, head_dim, dtype),
          [=](const Place& place) {
            auto inputs =
                std::make_shared<Inputs>(Inputs{{place, DType::fp32, {rows, heads, head_dim}},
                                                {place, dtype, {heads, rows, head_dim}},
                                                {place, DType::fp32, {heads, rows}},
                                                std::vector<int64_t>(rows)});
            std::iota(inputs->slots.begin(), inputs->slots.end(), 0);
            return keep(inputs, [place, dtype](Inputs& i) {
              const TensorView scales = dtype == DType::fp8 ? i.scales.view : TensorView();
              place.backend.kv_store({i.x.view, i.slots, i.cache.view, scales}, place.stream);
            });
          }};
}

Case rotate_and_store(const Model& model, int64_t rows, DType dtype) {
  struct Inputs {
    Tensor heads, cos, sin, q_out, keys, values;
    std::vector<int64_t> slots;
  };
  const int64_t num_heads = model.num_heads, kv_heads = model.num_kv_heads, dim = model.head_dim;
  const int64_t queries = num_heads * dim, keys = kv_heads * dim;
  return {
      "rotate_and_store",
      fmt::format("{} × {} and {} heads of {} {}", rows, num_heads, kv_heads, dim, name_of(dtype)),
      0,
      bytes_of({rows, 2 * queries + 2 * keys}) + bytes_of({rows, dim}) +
          vectors_bytes(2 * rows * kv_heads, dim, dtype),
      [=](const Place& place) {
        auto inputs =
            std::make_shared<Inputs>(Inputs{{place, DType::fp32, {rows, queries + 2 * keys}},
                                            {place, DType::fp32, {rows, dim / 2}},
                                            {place, DType::fp32, {rows, dim / 2}},
                                            {place, DType::fp32, {rows, num_heads, dim}},
                                            {place, dtype, {kv_heads, rows, dim}},
                                            {place, dtype, {kv_heads, rows, dim}},
                                            std::vector<int64_t>(rows)});
        std::iota(inputs->slots.begin(), inputs->slots.end(), 0);
        return keep(inputs, [=](Inputs& i) {
          place.backend.rotate_and_store({.q = i.heads.view.slice_columns(0, queries),
                                          .k = i.heads.view.slice_columns(queries, keys),
                                          .v = i.heads.view.slice_columns(queries + keys, keys),
                                          .q_norm = {},
                                          .k_norm = {},
                                          .eps = 0,
                                          .cos = i.cos.view,
                                          .sin = i.sin.view,
                                          .pairs = kernels::RopePairs::halves,
                                          .q_out = i.q_out.view,
                                          .slots = i.slots,
                                          .keys = {i.keys.view},
                                          .values = {i.values.view}},
                                         place.stream);
        });
      }};
}

Case column_sums(const Model& model, int64_t rows, int64_t keys, DType dtype) {
  struct Inputs {
    Tensor q, lse, k, sums;
    std::vector<int64_t> query_positions;
  };
  const int64_t heads = model.num_heads, kv_heads = model.num_kv_heads, head_dim = model.head_dim;
  return {"column_sums",
          fmt::format("{} rows, {} keys, {}/{} heads of {} {}", rows, keys, heads, kv_heads,
                      head_dim, name_of(dtype)),
          2.0 * static_cast<double>(rows * keys * heads * head_dim),
          bytes_of({kv_heads, keys, head_dim}, dtype) + bytes_of({heads, keys}),
          [=](const Place& place) {
            auto inputs =
                std::make_shared<Inputs>(Inputs{{place, DType::fp32, {rows, heads, head_dim}},
                                                {place, DType::fp32, {rows, heads}},
                                                {place, dtype, {kv_heads, keys, head_dim}},
                                                {place, DType::fp32, {heads, keys}},
                                                std::vector<int64_t>(rows, keys)});
            return keep(inputs, [=](Inputs& i) {
              place.backend.column_sums({.q = i.q.view,
                                         .lse = i.lse.view,
                                         .query_positions = i.query_positions,
                                         .run = {0, keys * head_dim, keys, 0},
                                         .keys = {.k = i.k.view.data()},
                                         .kv_dtype = dtype,
                                         .num_kv_heads = kv_heads,
                                         .scale = 1.0f / std::sqrt(static_cast<float>(head_dim)),
                                         .sums = i.sums.view},
                                        place.stream);
            });
          }};
}

Case merge(const Model& model, int64_t rows) {
  struct Inputs {
    Tensor part_out, part_lse, out, lse;
  };
  const int64_t heads = model.num_heads, head_dim = model.head_dim;
  return {
      "merge", fmt::format("{} × {} heads of {}", rows, heads, head_dim), 0,
      3 * bytes_of({rows, heads, head_dim}) + 3 * bytes_of({rows, heads}), [=](const Place& place) {
        auto inputs = std::make_shared<Inputs>(Inputs{{place, DType::fp32, {rows, heads, head_dim}},
                                                      {place, DType::fp32, {rows, heads}},
                                                      {place, DType::fp32, {rows, heads, head_dim}},
                                                      {place, DType::fp32, {rows, heads}}});
        return keep(inputs, [place](Inputs& i) {
          place.backend.merge({i.part_out.view, i.part_lse.view, {}, i.out.view, i.lse.view},
                              place.stream);
        });
      }};
}

}  // namespace pecia::bench::ops
