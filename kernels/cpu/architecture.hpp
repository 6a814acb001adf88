// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What an architecture gives beside the vectors behind bf16_native.hpp, bf16_products.hpp,
/// bf16_few_rows.hpp, lane_dot.hpp, code_numbers.hpp, packed_rows.hpp, twin_product.hpp,
/// strip_lanes.hpp, strip_products.hpp, row_weights.hpp, amx_kernel.hpp and peak_loops.hpp. CMake
/// compiles one of the folders x86 and arm.

#include <string_view>

namespace pecia::kernels::cpu {

/// Limits Highway to the vectors of pecia::isa(). Throws Unsupported on a CPU that has fewer than the
/// backend needs.
void choose_vectors();

/// The instructions without which has_native_bf16() is false: "AVX512-BF16".
std::string_view needed_for_bf16();

}  // namespace pecia::kernels::cpu
