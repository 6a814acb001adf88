// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What a phase of a model cannot do without: the numerators of "share of the floor".

#include <cstdint>

#include "lib/core/dtype.hpp"
#include "lib/model/config.hpp"
#include "lib/model/device_weights.hpp"

namespace pecia::bench {

/// FLOPs of the matrices of all layers for one token, 2 for each parameter; and of the head for one
/// row.
double layer_flops_per_token(const model::ModelConfig& config);
double head_flops_per_row(const model::ModelConfig& config);

/// FLOPs of attention (scores and values, 4 · Hq · D for each pair) in all layers: of the new
/// tokens at positions [first, first + count), each seeing itself and what is before it, or its
/// layer's window.
double attention_flops(const model::ModelConfig& config, int64_t first, int64_t count);

/// A whole prompt through all layers after `cached` tokens, and the logits after its last token.
double prefill_flops(const model::ModelConfig& config, int64_t tokens, int64_t cached);

/// One new token for each of `batch` sequences whose cache holds `cached` tokens before it.
double decode_flops(const model::ModelConfig& config, int64_t batch, int64_t cached);

/// Bytes that the same step has to read: the matrices once on each rank that has a row (at most
/// `ranks`), and keys and values of all tokens that a query sees, once. `quantize`: what the
/// matrices are rounded to at load.
double decode_bytes(const model::ModelConfig& config, const model::Weights& weights, int64_t batch,
                    int64_t cached, DType kv_dtype, int ranks,
                    model::Quantize quantize = model::Quantize::nothing);

}  // namespace pecia::bench
