// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/attention/attention_products.hpp"

#include <algorithm>

#include "kernels/cpu/attention/attention_plan.hpp"
#include "kernels/cpu/attention/softmax_bf16.hpp"
#include "kernels/cpu/products/bf16_few_rows.hpp"
#include "kernels/cpu/products/bf16_native.hpp"
#include "kernels/cpu/products/dot.hpp"
#include "kernels/cpu/products/gemm.hpp"
#include "kernels/cpu/products/lane_dot.hpp"

namespace pecia::kernels::cpu {
namespace {

// Up to this many rows keys are read in place rather than packed. Widened ones, measured: 0.7
// against 0.8 µs for 3 rows of 64 and a block of keys, 2.7 against 1.3 µs for 12. Keys and values
// of bf16, of 128 from memory: 1.9 against 4.6 ms for 8 rows and 32768 keys, 4.8 against 6.2 ms
// for 24.
constexpr int64_t few_rows = 4;
constexpr int64_t few_rows_bf16 = 28;

int64_t wide_elements(const TileShape& shape) {
  return shape.kv_dtype == DType::fp8 ? block_keys * shape.head_dim : 0;
}

constexpr int64_t in_whole_panels(int64_t columns) {
  return (columns + bf16_panel - 1) / bf16_panel * bf16_panel;
}

}  // namespace

int64_t WideProducts::scratch_bytes(const TileShape& shape) {
  return Carver::bytes_of<float>(shape.rows * shape.head_dim) +
         Carver::bytes_of<float>(padded_columns(block_keys) * shape.head_dim) +
         Carver::bytes_of<float>(block_keys * padded_columns(shape.head_dim));
}

WideProducts::WideProducts(const TileShape& shape, Carver& scratch)
    : shape_(shape),
      q_(scratch.take<float>(shape.rows * shape.head_dim)),
      packed_k_(scratch.take<float>(padded_columns(block_keys) * shape.head_dim)),
      wide_v_(scratch.take<float>(block_keys * padded_columns(shape.head_dim))) {}

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
  widen_rows(v, shape_.kv_dtype, shape_.head_dim, num_keys, shape_.head_dim, wide_v_,
             padded_columns(shape_.head_dim));
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
        .b_row_stride = padded_columns(shape_.head_dim),
        .b_panel_stride = panel_columns(),
        .c = state.out,
        .c_stride = state.out_stride,
        .rows = scores.rows,
        .columns = shape_.head_dim,
        .depth = scores.keys,
        .accumulate = true});
}

int64_t Bf16Products::scratch_bytes(const TileShape& shape) {
  const int64_t q_stride = shape.kernel->packed_depth(shape.head_dim);
  return Carver::bytes_of<uint16_t>(shape.rows * q_stride) +
         Carver::bytes_of<uint16_t>(shape.most_rows * block_keys) +
         2 * Carver::bytes_of<uint16_t>(wide_elements(shape)) +
         Carver::bytes_of<uint16_t>(in_whole_panels(block_keys) * q_stride) +
         Carver::bytes_of<uint16_t>(shape.kernel->packed_depth(block_keys) *
                                    in_whole_panels(shape.head_dim));
}

Bf16Products::Bf16Products(const TileShape& shape, Carver& scratch)
    : shape_(shape),
      use_(*shape.kernel),
      q_stride_(shape.kernel->packed_depth(shape.head_dim)),
      q_(scratch.take<uint16_t>(shape.rows * q_stride_)),
      weights_(scratch.take<uint16_t>(shape.most_rows * block_keys)),
      wide_k_(scratch.take<uint16_t>(wide_elements(shape))),
      wide_v_(scratch.take<uint16_t>(wide_elements(shape))),
      packed_k_(scratch.take<uint16_t>(in_whole_panels(block_keys) * q_stride_)),
      packed_v_(scratch.take<uint16_t>(shape.kernel->packed_depth(block_keys) *
                                       in_whole_panels(shape.head_dim))) {}

void Bf16Products::set_queries(const void* from, DType dtype, float factor, int64_t first,
                               int64_t count) {
  factor_ = factor;
  for (int64_t r = 0; r < count; ++r) {
    uint16_t* const to = q_ + (first + r) * q_stride_;
    std::fill(to + shape_.head_dim, to + q_stride_, 0);
    const int64_t begin = r * shape_.head_dim;
    if (dtype == DType::bf16)
      std::copy_n(static_cast<const uint16_t*>(from) + begin, shape_.head_dim, to);
    else
      store_bf16_native(static_cast<const float*>(from) + begin, shape_.head_dim, to);
  }
}

bool Bf16Products::reads_in_place() const {
  return shape_.rows <= few_rows_bf16 && (shape_.kernel->bits_of_few_rows || !shape_.row_invariant);
}

void Bf16Products::set_block(const char* k, const char* v, int64_t num_keys,
                             int64_t bytes_to_next) {
  if (shape_.kv_dtype == DType::fp8) {
    const int64_t count = num_keys * shape_.head_dim;
    fp8_to_bf16_native(reinterpret_cast<const uint8_t*>(k), count, bytes_to_next, wide_k_);
    fp8_to_bf16_native(reinterpret_cast<const uint8_t*>(v), count, bytes_to_next, wide_v_);
    k_ = wide_k_, v_ = wide_v_, ahead_ = shape_.head_dim;  // in the cache already
  } else {
    k_ = reinterpret_cast<const uint16_t*>(k), v_ = reinterpret_cast<const uint16_t*>(v);
    ahead_ = bytes_to_next / static_cast<int64_t>(sizeof(uint16_t));
  }
  v_depth_ = shape_.kernel->packed_depth(num_keys);
  if (reads_in_place()) return;
  shape_.kernel->pack({.rows = k_,
                       .row_stride = shape_.head_dim,
                       .columns = num_keys,
                       .depth = shape_.head_dim,
                       .packed = packed_k_,
                       .ahead = ahead_});
  shape_.kernel->pack_rows({.rows = v_,
                            .row_stride = shape_.head_dim,
                            .columns = shape_.head_dim,
                            .depth = num_keys,
                            .packed = packed_v_,
                            .ahead = ahead_});
}

void Bf16Products::multiply_keys(TileRows rows, int64_t num_keys, float* scores) {
  const uint16_t* const q = q_ + rows.first * q_stride_;
  if (reads_in_place())
    (shape_.row_invariant ? dot_bf16 : lane_dot_bf16)({.a = q,
                                                       .a_stride = q_stride_,
                                                       .b = k_,
                                                       .b_stride = shape_.head_dim,
                                                       .c = scores,
                                                       .c_stride = block_keys,
                                                       .rows = rows.count,
                                                       .columns = num_keys,
                                                       .depth = shape_.head_dim,
                                                       .accumulate = false,
                                                       .factor = factor_,
                                                       .ahead = ahead_});
  else
    shape_.kernel->multiply({.a = q,
                             .a_stride = q_stride_,
                             .b = packed_k_,
                             .c = scores,
                             .c_stride = block_keys,
                             .rows = rows.count,
                             .columns = num_keys,
                             .depth = shape_.head_dim,
                             .accumulate = false,
                             .factor = factor_});
}

void Bf16Products::add_values(const ScoreBlock& scores, const OnlineRows& state,
                              const float* v_scales) {
  softmax_block_bf16(scores, state, weights_, block_keys, v_scales);
  if (reads_in_place())
    return add_rows_bf16({.a = weights_,
                          .a_stride = block_keys,
                          .b = v_,
                          .b_stride = shape_.head_dim,
                          .c = state.out,
                          .c_stride = state.out_stride,
                          .rows = scores.rows,
                          .columns = shape_.head_dim,
                          .depth = scores.keys,
                          .ahead = ahead_});
  shape_.kernel->multiply({.a = weights_,
                           .a_stride = block_keys,
                           .b = packed_v_,
                           .c = state.out,
                           .c_stride = state.out_stride,
                           .rows = scores.rows,
                           .columns = shape_.head_dim,
                           .depth = scores.keys,
                           .accumulate = true,
                           .panel_depth = v_depth_});
}

}  // namespace pecia::kernels::cpu
