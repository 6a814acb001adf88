// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The least work of a phase of a model: the numerators of "share of the floor".

#include <cstdint>
#include <span>

#include "lib/base/core/dtype.hpp"
#include "lib/model/config/config.hpp"
#include "lib/model/weights/device_weights.hpp"

namespace pecia::bench {

/// FLOPs of all layers for one token, without attention: 2 for each parameter of the matrices, and
/// those of recurrences row by row. And FLOPs of the head for one row.
double layer_flops_per_token(const model::ModelConfig& config);
double head_flops_per_row(const model::ModelConfig& config);

/// FLOPs of attention in all layers that attend (scores and values, 4 · Hq · D for each pair). The new tokens
/// are at positions [first, first + count); each sees itself and all tokens before it, or those in
/// its layer's window.
double attention_flops(const model::ModelConfig& config, int64_t first, int64_t count);

/// FLOPs of a whole prompt through all layers after `cached` tokens, and of its last token's
/// logits. What follows the last mixer is for that token alone.
double prefill_flops(const model::ModelConfig& config, int64_t tokens, int64_t cached);

/// FLOPs of one new token for each of `batch` sequences that have `cached` tokens in the cache.
double decode_flops(const model::ModelConfig& config, int64_t batch, int64_t cached);

/// Bytes that this step has to read: the matrices once on each rank that has a row (at most
/// `ranks`), of experts those that its rows touch if they choose at random, and once the states of
/// recurrences, and keys and values of all visible tokens. `quantize`: the rounding of the matrices
/// at load.
double decode_bytes(const model::ModelConfig& config, const model::Weights& weights, int64_t batch,
                    int64_t cached, DType kv_dtype, int ranks,
                    model::Quantize quantize = model::Quantize::nothing);

/// The number of sequences, from the first on, whose caches together take at most `room_bytes`.
int64_t sequences_that_fit(std::span<const int64_t> bytes_of_each, int64_t room_bytes);

}  // namespace pecia::bench
