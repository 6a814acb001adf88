#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/reference/reference.hpp"

namespace pecia::kernels::reference {

float round_to_codes(std::span<float> row) {
  float largest = 0;
  for (const float value : row) largest = std::fmax(largest, std::fabs(value));
  const float scale = std::max(largest / max_fp8, 0x1p-126f);
  for (float& value : row) value = fp8_to_float(float_to_fp8(value * (1 / scale)));
  return scale;
}

void quantize_rows(const QuantizeRowsArgs& args) {
  const int64_t columns = args.x.size(1);
  std::vector<float> row(columns);
  for (int64_t t = 0; t < args.x.rows(); ++t) {
    for (int64_t i = 0; i < columns; ++i) row[i] = load_as_float(args.x.row(t), args.x.dtype(), i);
    const float scale = args.scales.as<float>()[t] = round_to_codes(row);
    double difference = 0, original = 0;
    for (int64_t i = 0; i < columns; ++i) {
      store_from_float(args.codes.row(t), DType::fp8, i, row[i]);
      const double x = load_as_float(args.x.row(t), args.x.dtype(), i);
      const double error = double{row[i]} * scale - x;
      difference += error * error;
      original += x * x;
    }
    if (!args.square_sums) continue;
    row_of(args.square_sums, t)[0] = static_cast<float>(difference);
    row_of(args.square_sums, t)[1] = static_cast<float>(original);
  }
}

}  // namespace pecia::kernels::reference
