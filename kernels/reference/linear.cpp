// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include "kernels/reference/reference.hpp"
#include "lib/base/core/codes.hpp"
#include "lib/base/core/fp8_blocks.hpp"

namespace pecia::kernels::reference {
namespace {

/// A row of x as the products take it: x = values · scale.
struct Operand {
  std::vector<float> values;
  float scale = 1;
};

Operand operand(const LinearArgs& args, int64_t t) {
  Operand row{std::vector<float>(args.x.size(1))};
  for (int64_t i = 0; i < args.x.size(1); ++i)
    row.values[i] = load_as_float(args.x.row(t), args.x.dtype(), i);
  if (args.weight.dtype() == DType::fp8 && args.weight_scales.rank() == 1)
    row.scale = round_to_codes(row.values);
  return row;
}

/// The numbers of the weight's row o.
std::vector<float> numbers_of(const LinearArgs& args, int64_t o) {
  const DType type = args.weight.dtype();
  const void* const scales = args.weight_scales ? args.weight_scales.row(o) : nullptr;
  const int64_t shared_by =
      type == DType::int4 ? int4_shared_by(args.weight_scales.size(1), args.weight.size(1)) : 0;
  const bool in_blocks =
      type == DType::fp8 && args.weight_scales.rank() == 2 && args.weight_scales.size(1) > 1;
  std::vector<float> numbers(args.x.size(1));
  for (int64_t i = 0; i < std::ssize(numbers); ++i) {
    const void* const own = in_blocks ? static_cast<const float*>(scales) + i / fp8_block : scales;
    numbers[i] = args.weight_factor * load_number(args.weight.row(o), type, own, i, shared_by);
  }
  return numbers;
}

/// Σ over elements [begin, end) of the depth, added to `before`.
double product(const Operand& x, const std::vector<float>& numbers, int64_t begin, int64_t end,
               double before) {
  double sum = 0;
  for (int64_t i = begin; i < end; ++i) sum += double{x.values[i]} * numbers[i];
  return before + x.scale * sum;
}

/// The splits' sums in fp32, added in pairs until one is left.
float tree_sum(std::vector<float> sums) {
  for (; sums.size() > 1; sums.resize(sums.size() / 2))
    for (size_t i = 0; i < sums.size() / 2; ++i) sums[i] = sums[2 * i] + sums[2 * i + 1];
  return sums.front();
}

}  // namespace

void linear(const LinearArgs& args) {
  const int64_t depth = args.x.size(1), width = depth / args.splits;
  const bool adds = args.accumulate == Accumulate::yes;
  std::vector<Operand> rows;
  rows.reserve(args.y.rows());
  for (int64_t t = 0; t < args.y.rows(); ++t) rows.push_back(operand(args, t));
  for (int64_t o = 0; o < args.y.size(1); ++o) {
    const std::vector<float> numbers = numbers_of(args, o);
    const double bias = args.bias ? load_as_float(args.bias.data(), args.bias.dtype(), o) : 0.0;
    for (int64_t t = 0; t < args.y.rows(); ++t) {
      const Operand& x = rows[t];
      const float before = adds ? row_of(args.y, t)[o] : 0.0f;
      if (args.splits == 1) {
        const double sum = product(x, numbers, 0, depth, bias + before);
        store_from_float(args.y.row(t), args.y.dtype(), o, static_cast<float>(sum));
        continue;
      }
      std::vector<float> sums;
      sums.reserve(args.splits);
      for (int split = 0; split < args.splits; ++split)
        sums.push_back(static_cast<float>(
            product(x, numbers, split * width, (split + 1) * width, split == 0 ? bias : 0.0)));
      const float sum = tree_sum(std::move(sums));
      row_of(args.y, t)[o] = adds ? before + sum : sum;
    }
  }
}

}  // namespace pecia::kernels::reference
