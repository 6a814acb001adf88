// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "kernels/reference/reference.hpp"
#include "lib/base/core/codes.hpp"

namespace pecia::kernels::reference {
namespace {

float greatest_magnitude(std::span<const float> row) {
  float largest = 0;
  for (const float value : row) largest = std::fmax(largest, std::fabs(value));
  return largest;
}

void to_fp8(std::vector<float> row, void* codes, float* scale) {
  *scale = round_to_codes(row);
  for (size_t i = 0; i < row.size(); ++i)
    store_from_float(codes, DType::fp8, static_cast<int64_t>(i), row[i]);
}

void to_int8(const std::vector<float>& row, void* codes, float* scale) {
  *scale = std::max(greatest_magnitude(row) / 127, 0x1p-126f);
  for (size_t i = 0; i < row.size(); ++i)
    static_cast<int8_t*>(codes)[i] = static_cast<int8_t>(std::nearbyint(row[i] * (1 / *scale)));
}

void to_int4(std::span<const float> row, void* codes, float* scales) {
  for (size_t begin = 0; begin < row.size(); begin += int4_group, scales += 2) {
    const auto group = row.subspan(begin, std::min<size_t>(int4_group, row.size() - begin));
    const auto [least, greatest] = std::minmax_element(group.begin(), group.end());
    scales[0] = std::max((*greatest - *least) / 15, 0x1p-126f);
    scales[1] = *least;
    uint16_t words[32] = {};
    for (size_t i = 0; i < group.size(); ++i) {
      const float code = std::nearbyint((group[i] - scales[1]) * (1 / scales[0]));
      words[i % 32] |= static_cast<uint16_t>(static_cast<int>(std::min(code, 15.0f)) << i / 32 * 4);
    }
    std::memcpy(static_cast<char*>(codes) + begin / int4_group * sizeof words, words, sizeof words);
  }
}

}  // namespace

float round_to_codes(std::span<float> row) {
  const float scale = std::max(greatest_magnitude(row) / max_fp8, 0x1p-126f);
  for (float& value : row) value = fp8_to_float(float_to_fp8(value * (1 / scale)));
  return scale;
}

void quantize_rows(const QuantizeRowsArgs& args) {
  const int64_t columns = args.x.size(1);
  const DType type = args.codes.dtype();
  std::vector<float> row(columns);
  for (int64_t t = 0; t < args.x.rows(); ++t) {
    for (int64_t i = 0; i < columns; ++i) row[i] = load_as_float(args.x.row(t), args.x.dtype(), i);
    void* const codes = args.codes.row(t);
    float* const scales = args.scales.as<float>() + t * row_scales(type, columns);
    if (type == DType::fp8)
      to_fp8(row, codes, scales);
    else if (type == DType::int8)
      to_int8(row, codes, scales);
    else
      to_int4(row, codes, scales);
    if (!args.square_sums) continue;
    double difference = 0, original = 0;
    for (int64_t i = 0; i < columns; ++i) {
      // fp8's is of exact products, as the other backends take it.
      const double number = type == DType::fp8 ? double{load_as_float(codes, type, i)} * *scales
                                               : load_number(codes, type, scales, i);
      const double error = number - row[i];
      difference += error * error;
      original += double{row[i]} * row[i];
    }
    row_of(args.square_sums, t)[0] = static_cast<float>(difference);
    row_of(args.square_sums, t)[1] = static_cast<float>(original);
  }
}

}  // namespace pecia::kernels::reference
