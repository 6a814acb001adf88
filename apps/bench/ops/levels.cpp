// SPDX-License-Identifier: Apache-2.0
#include "apps/bench/ops/levels.hpp"

#include <cmath>
#include <tuple>

namespace pecia::bench::ops {
namespace {

int64_t kept_of(int64_t tokens) {
  return tokens * 4 / 5;
}

/// The arguments of kept_order, and its lists.
struct Lists {
  Lists(const Place& place, int64_t heads, int64_t tokens)
      : importance(place, DType::fp32, {heads * tokens}),
        buffer(std::make_shared<Buffer>(place.device, device::Memory::device)),
        order(buffer->tensor(DType::int32, {heads * tokens})),
        counts{kept_of(tokens) / 2, kept_of(tokens)},
        runs{{0, tokens}} {
    for (int64_t head = 0; head < heads; ++head)
      items.push_back({head * tokens, tokens, 16, 32, 0, 2, 0, 1, head * tokens});
  }

  void fill(const Place& place) const {
    place.backend.kept_order({importance, items, counts, runs, order}, place.stream);
  }
  /// What the first level keeps of a head's tokens.
  TensorView kept(int64_t head) const { return order.slice_rows(head * runs[0].count, counts[1]); }

  Tensor importance;
  std::shared_ptr<Buffer> buffer;
  TensorView order;
  std::vector<kernels::OrderItem> items;
  std::vector<int64_t> counts;
  std::vector<kernels::PlaceRun> runs;
};

}  // namespace

Case column_sums(const Model& model, int64_t rows, int64_t keys, DType dtype) {
  const int64_t heads = model.num_heads, kv_heads = model.num_kv_heads, head_dim = model.head_dim;
  return {"column_sums",
          fmt::format("{} rows, {} keys, {}/{} heads of {} {}", rows, keys, heads, kv_heads,
                      head_dim, name_of(dtype)),
          2.0 * static_cast<double>(rows * keys * heads * head_dim),
          bytes_of({kv_heads, keys, head_dim}, dtype) + bytes_of({kv_heads, keys}),
          [=](const Place& place) {
            const Tensor q(place, DType::fp32, {rows, heads, head_dim});
            const Tensor lse(place, DType::fp32, {rows, heads});
            const Tensor k(place, dtype, {kv_heads, keys, head_dim});
            const Tensor sums(place, DType::fp32, {kv_heads, keys});
            return [=, positions = std::vector<int64_t>(rows, keys)] {
              place.backend.column_sums({.q = q,
                                         .lse = lse,
                                         .query_positions = positions,
                                         .run = {0, keys * head_dim, keys, 0},
                                         .keys = {.k = k.view.data()},
                                         .kv_dtype = dtype,
                                         .num_kv_heads = kv_heads,
                                         .scale = 1.0f / std::sqrt(static_cast<float>(head_dim)),
                                         .sums = sums},
                                        place.stream);
            };
          }};
}

Case kept_order(const Model& model, int64_t tokens) {
  const int64_t heads = model.num_kv_heads;
  return {"kept_order", fmt::format("{} tokens of {} KV heads", tokens, heads), 0,
          2 * bytes_of({heads, tokens}), [=](const Place& place) {
            return [=, lists = Lists(place, heads, tokens)] { lists.fill(place); };
          }};
}

Case pick_rows(const Model& model, int64_t tokens, DType dtype) {
  const int64_t heads = model.num_kv_heads, head_dim = model.head_dim, kept = kept_of(tokens);
  return {"pick_rows",
          fmt::format("{} of {} tokens of {} heads of {} {}", kept, tokens, heads, head_dim,
                      name_of(dtype)),
          0, 2 * bytes_of({heads, kept, head_dim}, dtype) + bytes_of({heads, kept}),
          [=](const Place& place) {
            const Lists lists(place, heads, tokens);
            lists.fill(place);
            const Tensor from(place, dtype, {heads * tokens, head_dim});
            const Tensor to(place, dtype, {heads * kept, head_dim});
            std::vector<kernels::PickedRows> picks;
            for (int64_t head = 0; head < heads; ++head)
              picks.push_back({from.view.slice_rows(head * tokens, tokens), lists.kept(head),
                               to.view.slice_rows(head * kept, kept)});
            return [=, memory = std::tuple(lists, from, to)] {
              place.backend.pick_rows({picks}, place.stream);
            };
          }};
}

Case merge_picked(const Model& model, int64_t rows) {
  const int64_t kv_heads = model.num_kv_heads, group = model.num_heads / kv_heads;
  const int64_t head_dim = model.head_dim, kept = kept_of(rows);
  return {"merge_picked",
          fmt::format("{} of {} rows × {} heads of {}", kept, rows, model.num_heads, head_dim), 0,
          3 * (bytes_of({kept, model.num_heads, head_dim}) + bytes_of({kept, model.num_heads})) +
              bytes_of({kv_heads, kept}),
          [=](const Place& place) {
            const Lists lists(place, kv_heads, rows);
            lists.fill(place);
            const Tensor out(place, DType::fp32, {rows, kv_heads * group, head_dim});
            const Tensor lse(place, DType::fp32, {rows, kv_heads * group});
            const Tensor part(place, DType::fp32, {kv_heads * kept, group, head_dim});
            const Tensor part_lse(place, DType::fp32, {kv_heads * kept, group});
            std::vector<kernels::PickedParts> parts;
            for (int64_t head = 0; head < kv_heads; ++head)
              parts.push_back({part.view.slice_rows(head * kept, kept),
                               part_lse.view.slice_rows(head * kept, kept), lists.kept(head),
                               head * group});
            return [=, memory = std::tuple(lists, part, part_lse)] {
              place.backend.merge_picked({parts, out, lse}, place.stream);
            };
          }};
}

Case row_need(const Model& model, int64_t rows) {
  const int64_t heads = model.num_heads, learnt = kept_of(rows) / 2;
  return {"row_need", fmt::format("{} of {} rows × {} heads", learnt, rows, heads), 0,
          2 * bytes_of({learnt, heads}) + 3 * bytes_of({rows}), [=](const Place& place) {
            const Lists lists(place, 1, rows);
            lists.fill(place);
            const Tensor here(place, DType::fp32, {rows, heads}), all = here;
            const Tensor need(place, DType::fp32, {rows});
            return [=] {
              const std::vector<kernels::LearntRows> list = {{lists.order, learnt}};
              place.backend.row_need({here, {}, all, list, 1.1f, need}, place.stream);
            };
          }};
}

}  // namespace pecia::bench::ops
