// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "apps/bench/ops/inputs.hpp"

namespace pecia::bench::ops {

/// Attention of the last `rows` of `keys` tokens of one sequence, causal. `heads` is the type of q
/// and out. With a window, FLOPs are those of what rows see.
Case attention(const Model& model, int64_t rows, int64_t keys, DType dtype = DType::bf16,
               DType heads = DType::fp32, int64_t window = 0);

Case rope(const Model& model, int64_t rows, kernels::RopePairs pairs, DType out = DType::fp32);

Case rope_tables(const Model& model, int64_t rows);

Case kv_store(const Model& model, int64_t rows, DType dtype);

/// Of a step of decoding, with one product for q, k and v.
Case rotate_and_store(const Model& model, int64_t rows, DType dtype);

Case merge(const Model& model, int64_t rows);

}  // namespace pecia::bench::ops
