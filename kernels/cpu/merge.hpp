// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstdint>

namespace pecia::kernels::cpu {

/// Partial results of rows, dense: out [rows, width], lse [rows].
struct PartOfRows {
  float* out;
  float* lse;
};

/// Merges a part into another one with the bits of the op `merge`. It uses one thread.
void merge_parts(const PartOfRows& into, const PartOfRows& part, int64_t rows, int64_t width);

}  // namespace pecia::kernels::cpu
