// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Views of codes and their scales, as kernels take them.

#include <bit>

#include "kernels/cuda/linear/gated_products.cuh"
#include "lib/base/core/codes.hpp"
#include "lib/base/core/fp8_blocks.hpp"

namespace pecia::kernels::cuda {

/// Quantised rows of `numbers` numbers.
inline CodeRows code_rows_of(const TensorView& weight, int64_t numbers) {
  const int64_t size = size_of(weight.dtype());
  return {static_cast<const uint8_t*>(weight.data()), weight.rows(), numbers, weight.size(1) * size,
          weight.row_stride() * size};
}

/// The scales of such rows and the matrix's factor, as LinearArgs has them.
inline CodeScales code_scales_of(const TensorView& weight, const TensorView& scales, float factor) {
  constexpr int32_t whole_row = 62;
  const auto shift_of = [](int64_t shared_by) {
    return static_cast<int32_t>(std::countr_zero(static_cast<uint64_t>(shared_by)));
  };
  if (scales.rank() == 1) return {scales.data(), 1, 1, whole_row};
  const int64_t count = scales.size(1);
  if (weight.dtype() == DType::int4)
    return {scales.data(), scales.row_stride(), count / 2,
            shift_of(int4_shared_by(count, weight.size(1)))};
  if (weight.dtype() == DType::fp8)
    return {scales.data(), scales.row_stride(), count,
            count == 1 ? whole_row : shift_of(fp8_block)};
  return {scales.data(), scales.row_stride(), count, shift_of(numbers_of(weight.dtype())),
          std::bit_cast<uint32_t>(factor)};
}

/// A matrix of bf16 or a quantised one, and the numbers of a row. `bias` may be absent.
inline QuantizedMatrix coded_matrix_of(const TensorView& weight, const TensorView& scales,
                                       float factor, const TensorView& bias, int64_t numbers) {
  return {code_rows_of(weight, numbers), code_scales_of(weight, scales, factor), bias_of(bias)};
}

inline bool begin_at_chunks(const CodeRows& rows) {
  return reinterpret_cast<uintptr_t>(rows.data) % chunk_bytes == 0 &&
         rows.stride % chunk_bytes == 0;
}

template <typename Rows, typename Body>
void aligned_or_not(Rows rows, bool aligned, const Body& body) {
  if (aligned)
    body(rows, std::true_type());
  else
    body(rows, std::false_type());
}

/// Calls body(Codes{}, std::bool_constant<Aligned>{}) for codes of a type. `aligned`: their rows
/// begin at chunks.
template <typename Body>
void with_codes(DType type, bool aligned, const Body& body) {
  if (type == DType::int8)
    aligned_or_not(Int8Codes(), aligned, body);
  else if (type == DType::int4)
    aligned_or_not(Int4Codes(), aligned, body);
  else if (type == DType::fp8)
    aligned_or_not(Fp8Codes(), aligned, body);
  else if (type == DType::nvfp4)
    aligned_or_not(Nvfp4Codes(), aligned, body);
  else
    aligned_or_not(Mxfp4Codes(), aligned, body);
}

/// Does the same for codes and bf16. `one_scale`: each row of codes has one, of any type.
template <typename Body>
void with_rows(DType type, bool one_scale, bool aligned, const Body& body) {
  if (type == DType::bf16)
    aligned_or_not(Bf16Rows(), aligned, body);
  else if (type == DType::fp8 && one_scale)
    aligned_or_not(Fp8RowCodes(), aligned, body);
  else
    with_codes(type, aligned, body);
}

}  // namespace pecia::kernels::cuda
