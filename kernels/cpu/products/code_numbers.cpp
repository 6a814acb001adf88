// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/products/code_numbers.hpp"

#include "kernels/cpu/shared/prefetch.hpp"
#include "lib/base/core/codes.hpp"

namespace pecia::kernels::cpu {
namespace {

struct Nvfp4Tables {
  alignas(64) Nvfp4Numbers of_scale[256];

  Nvfp4Tables() {
    for (int scale = 0; scale < 256; ++scale)
      for (int code = 0; code < 16; ++code)
        of_scale[scale][code] = float_to_bf16(fp4_to_float(code) * fp8_numbers()[scale]);
  }
};

struct Mxfp4Tables {
  alignas(64) Mxfp4Numbers of_scale[256];

  Mxfp4Tables() {
    for (int scale = 0; scale < 256; ++scale)
      for (int i = 0; i < 32; ++i)
        of_scale[scale][i] =
            float_to_bf16(fp4_to_float(i % 16) * power_of_scale(static_cast<uint8_t>(scale)));
  }
};

}  // namespace

const Mxfp4Numbers* mxfp4_numbers() {
  static const Mxfp4Tables tables;
  return tables.of_scale;
}

const Nvfp4Numbers* nvfp4_numbers() {
  static const Nvfp4Tables tables;
  return tables.of_scale;
}

int64_t bytes_ahead_of(const CodeRows& rows, int64_t numbers) {
  const int64_t element = size_of(rows.dtype);
  return bytes_ahead(rows.row_stride * element, row_elements(rows.dtype, numbers) * element);
}

void codes_to_bf16(const CodeRows& from, int64_t rows, int64_t begin, int64_t count, uint16_t* to,
                   int64_t to_stride) {
  const int64_t ahead = bytes_ahead_of(from, count);
  for (int64_t row = 0; row < rows; ++row, to += to_stride) {
    const CodeRows one = from.from(row);
    const CodesToBf16 row_to_bf16{count, ahead, to};
    if (from.dtype == DType::int8)
      row_to_bf16.of_int8(static_cast<const int8_t*>(one.data) + begin, *one.factors());
    else if (from.dtype == DType::mxfp4)
      row_to_bf16.of_mxfp4(static_cast<const uint8_t*>(one.data) + begin / 2,
                           static_cast<const uint8_t*>(one.scales) + begin / mxfp4_block);
    else if (from.dtype == DType::nvfp4)
      row_to_bf16.of_nvfp4(static_cast<const uint8_t*>(one.data) + begin / 2,
                           static_cast<const uint8_t*>(one.scales) + begin / nvfp4_block,
                           one.factor);
    else
      row_to_bf16.of_int4(static_cast<const std::byte*>(one.data) + begin / 2,
                          one.factors() + begin / from.shared_by * 2, from.shared_by);
  }
}

}  // namespace pecia::kernels::cpu
