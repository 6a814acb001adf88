// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "kernels/cuda/experts/grouped_matmul.hpp"

namespace pecia::test {

/// Grouped products by plain loops with sums in doubles, in memory that the CPU can touch when its
/// streams run. Throws where TMA would not take a matrix: rows at other places than multiples of 16
/// bytes. `calls` counts them; it outlives the object. `fp8_factor`: by how much sums of fp8 are wrong.
std::unique_ptr<kernels::cuda::GroupedMatmul> make_plain_grouped_matmul(int& calls,
                                                                        double fp8_factor = 1);

}  // namespace pecia::test
