// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/attention/wide_products.hpp"

#include "kernels/cpu/attention/attention_plan.hpp"
#include "kernels/cpu/products/dot.hpp"
#include "kernels/cpu/products/gemm.hpp"

namespace pecia::kernels::cpu {
namespace {

// Up to this many rows widened keys are read in place rather than packed, measured: 0.7 against
// 0.8 µs for 3 rows of 64 and a block of keys, 2.7 against 1.3 µs for 12.
constexpr int64_t few_rows = 4;

}  // namespace

int64_t WideProducts::scratch_bytes(const TileShape& shape) {
  return Carver::bytes_of<float>(shape.rows * shape.head_dim) +
         Carver::bytes_of<float>(padded_columns(block_keys) * shape.head_dim) +
         Carver::bytes_of<float>(block_keys * padded_columns(shape.value_dim));
}

WideProducts::WideProducts(const TileShape& shape, Carver& scratch)
    : shape_(shape),
      q_(scratch.take<float>(shape.rows * shape.head_dim)),
      packed_k_(scratch.take<float>(padded_columns(block_keys) * shape.head_dim)),
      wide_v_(scratch.take<float>(block_keys * padded_columns(shape.value_dim))) {}

void WideProducts::set_queries(const void* from, DType dtype, float factor, int64_t first,
                               int64_t count) {
  PECIA_CHECK(dtype == DType::fp32, "queries of {} for products of fp32", name_of(dtype));
  scale_row(static_cast<const float*>(from), factor, count * shape_.head_dim,
            q_ + first * shape_.head_dim);
}

bool WideProducts::reads_in_place() const {
  return shape_.rows <= few_rows && !shape_.row_invariant;
}

void WideProducts::set_block(const char* k, const char* v, int64_t num_keys, int64_t) {
  k_ = k;
  if (!reads_in_place())
    pack_transposed({.rows = k,
                     .dtype = shape_.kv_dtype,
                     .row_stride = shape_.head_dim,
                     .columns = num_keys,
                     .depth = shape_.head_dim,
                     .packed = packed_k_});
  widen_rows(v, shape_.kv_dtype, shape_.head_dim, num_keys, shape_.value_dim, wide_v_,
             padded_columns(shape_.value_dim));
}

void WideProducts::multiply_keys(TileRows rows, int64_t num_keys, float* scores) {
  const float* const q = q_ + rows.first * shape_.head_dim;
  if (reads_in_place())
    dot_rows({.a = q,
              .a_stride = shape_.head_dim,
              .b = k_,
              .b_dtype = shape_.kv_dtype,
              .b_stride = shape_.head_dim,
              .c = scores,
              .c_stride = block_keys,
              .rows = rows.count,
              .columns = num_keys,
              .depth = shape_.head_dim,
              .accumulate = false});
  else
    gemm({.a = q,
          .a_stride = shape_.head_dim,
          .b = packed_k_,
          .b_row_stride = panel_columns(),
          .b_panel_stride = panel_columns() * shape_.head_dim,
          .c = scores,
          .c_stride = block_keys,
          .rows = rows.count,
          .columns = num_keys,
          .depth = shape_.head_dim,
          .accumulate = false});
}

void WideProducts::add_values(const ScoreBlock& scores, const OnlineRows& state,
                              const float* v_scales) {
  softmax_block(scores, state);
  if (v_scales) scale_columns(scores, v_scales);
  gemm({.a = scores.scores,
        .a_stride = scores.stride,
        .b = wide_v_,
        .b_row_stride = padded_columns(shape_.value_dim),
        .b_panel_stride = panel_columns(),
        .c = state.out,
        .c_stride = state.out_stride,
        .rows = scores.rows,
        .columns = shape_.value_dim,
        .depth = scores.keys,
        .accumulate = true});
}

}  // namespace pecia::kernels::cpu
