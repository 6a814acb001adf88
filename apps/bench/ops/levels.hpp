// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Ops of sparse attention by levels. Lists of tokens are those of kept_order: two levels keep 80 % and
/// 40 % of each head's tokens.

#include "apps/bench/ops/inputs.hpp"

namespace pecia::bench::ops {

/// Sums for the last rows of a prompt, which see all keys.
Case column_sums(const Model& model, int64_t rows, int64_t keys, DType dtype);

/// Of all KV heads.
Case kept_order(const Model& model, int64_t tokens);

/// Keys of all KV heads that the first level keeps.
Case pick_rows(const Model& model, int64_t tokens, DType dtype);

/// Results of all heads for the rows that the first level keeps, each KV head's others.
Case merge_picked(const Model& model, int64_t rows);

/// All rows are in a list, and 40 % are learnt.
Case row_need(const Model& model, int64_t rows);

}  // namespace pecia::bench::ops
