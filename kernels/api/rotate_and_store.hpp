// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstdint>
#include <span>

#include "kernels/api/rope.hpp"

namespace pecia::kernels {

/// Where the keys or the values of a layer are stored, as KvStoreArgs names it.
struct StoredHeads {
  TensorView vectors;      ///< [num_kv_heads, capacity, head_dim], fp32, bf16, fp16 or fp8
  TensorView scales = {};  ///< of fp8, [num_kv_heads, capacity] fp32
};

/// Does what stands between a layer's products and its attention, with the bits of these single ops:
///
///     q, k        = rms_norm(q, q_norm), rms_norm(k, k_norm)     of each head, where there are norms
///     q, k        = rope(q), rope(k)                             where there are tables
///     q_out       = q
///     keys, values = kv_store(k), kv_store(v)
///
/// Heads are read and written once, in one launch (Backend::gains_by_fewer_ops).
struct RotateAndStoreArgs {
  /// [rows, heads · head_dim] fp32, only read. Rows may be strided, as in one product for all three.
  TensorView q, k, v;
  TensorView q_norm, k_norm;  ///< [head_dim], fp32, bf16 or fp16, of one type, or both absent
  float eps;                  ///< of the norms
  TensorView cos, sin;        ///< [rows, rotary_dim / 2] fp32, or both absent
  RopePairs pairs;
  TensorView q_out;  ///< [rows, num_heads, head_dim], fp32 or bf16, dense, written
  std::span<const int64_t> slots = {};  ///< [rows], distinct, each in [0, capacity)
  StoredHeads keys = {}, values = {};   ///< written at the slots
};

}  // namespace pecia::kernels
