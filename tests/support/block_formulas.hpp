// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Bytes that one rank sends inside its SP × TP block for one layer of a pass, from shapes alone: an
/// oracle for what is really sent. What travels round rings is in ring_formulas.hpp. Activations
/// are fp32, but for rows that are gathered. With T rows in the block, N ranks and MHA (E = Hq·D)
/// all ranks together send for attention
///
///     SP-NTP (gathered)   (4·E² + 4·T·E/N)·(N−1) elements
///     SP-TP               2·T·E·(N−1)
///
/// and SP-TP as much again for the FFN, SP-NTP its 3·E·F weights (CSPS §3.2.1; the design's
/// sequence-parallelism.md §3).

#include <cstdint>

#include "lib/ranks/parallel/sharding.hpp"

namespace pecia::parallel {

struct BlockShape {
  int64_t hidden = 0, ffn = 0, num_heads = 0, num_kv_heads = 0, head_dim = 0;
  int64_t weight_bytes = 4;   ///< of one element
  int64_t operand_bytes = 4;  ///< of one element of the rows that are gathered for products
};

struct LayerTraffic {
  int64_t heads = 0;    ///< all-to-alls to heads and back to rows
  int64_t gather = 0;   ///< rows gathered before products
  int64_t reduce = 0;   ///< products summed after them
  int64_t weights = 0;  ///< weights gathered; biases, scales and alignment not counted

  int64_t total() const { return heads + gather + reduce + weights; }
};

/// With flat collectives, one for each of row_blocks.
LayerTraffic layer_traffic(const BlockShape& shape, Sharding sharding, const BlockPlace& place,
                           int64_t num_rows);

/// What the rank sends so that every row has its token's embedding, from a table cut over ranks.
int64_t embedding_traffic(const BlockShape& shape, Sharding sharding, const BlockPlace& place,
                          int64_t num_rows);

/// What the rank sends of its part of the vocabulary so that each of `count` rows is whole on one
/// rank; a row of the part takes `row_bytes`: its logits, or a shortlist of them.
int64_t logits_traffic(int64_t count, const WeightCut& vocab, int64_t row_bytes);

/// A layer's of all ranks of the block together.
int64_t block_traffic(const BlockShape& shape, Sharding sharding, int sp, int tp, int64_t num_rows);

}  // namespace pecia::parallel
