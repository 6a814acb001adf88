// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/experts/fp8_experts_check.hpp"

#include <cmath>
#include <utility>
#include <vector>

#include "kernels/cuda/cuda.hpp"
#include "lib/base/core/random.hpp"

namespace pecia::kernels::cuda {
namespace {

constexpr int64_t hidden = 400, ffn = 272, count = 4, k = 2, rows = 150;
/// A quarter of the rows choose experts 0 and 3, the first six 1 and 0, and the others 0 and 1; expert 2
/// has no row.
constexpr int32_t first_of(int64_t row) {
  return row < 6 ? 1 : 0;
}
constexpr int32_t second_of(int64_t row) {
  return row < 6 ? 0 : row % 4 == 0 ? 3 : 1;
}

class Check {
 public:
  explicit Check(Context& context) : context_(context), stream_(context.device.make_stream()) {
    x_ = fill(DType::bf16, {rows, hidden}, 1);
    for (int64_t e = 0; e < count; ++e) {
      Expert expert;
      expert.gate = fill(DType::fp8, {ffn, hidden}, largest_code);
      expert.up = fill(DType::fp8, {ffn, hidden}, largest_code);
      expert.down = fill(DType::fp8, {hidden, ffn}, largest_code);
      expert.gate_scales = scales_of(ffn, hidden);
      expert.up_scales = scales_of(ffn, hidden);
      expert.down_scales = scales_of(hidden, ffn);
      expert.gate_bias = fill(DType::fp32, {ffn}, 1);
      expert.up_bias = fill(DType::fp32, {ffn}, 1);
      expert.down_bias = fill(DType::fp32, {hidden}, 1);
      experts_.push_back(expert);
    }
    weights_ = fill(DType::fp32, {rows, k}, 0.5f, 1);
    std::vector<int32_t> chosen;
    for (int64_t row = 0; row < rows; ++row) {
      chosen.push_back(first_of(row));
      chosen.push_back(second_of(row));
    }
    chosen_ = on_device(chosen.data(), DType::int32, {rows, k});
  }

  std::vector<float> run() {
    const TensorView y = y_.tensor(DType::fp32, {rows, hidden});
    experts({.x = x_, .chosen = chosen_, .weights = weights_, .experts = experts_, .y = y},
            context_, *stream_);
    std::vector<float> result(y.elements());
    context_.device.copy(result.data(), y.data(), y.elements() * size_of(DType::fp32), *stream_);
    stream_->synchronize();
    return result;
  }

 private:
  static constexpr float largest_code = 448;

  TensorView on_device(const void* values, DType dtype, std::vector<int64_t> shape) {
    int64_t elements = 1;
    for (const int64_t size : shape) elements *= size;
    buffers_.emplace_back(context_.device, device::Memory::device);
    const TensorView to = shape.size() == 1 ? buffers_.back().tensor(dtype, {elements})
                                            : buffers_.back().tensor(dtype, {shape[0], shape[1]});
    context_.device.copy(to.data(), values, elements * size_of(dtype), *stream_);
    stream_->synchronize();
    return to;
  }
  /// Numbers of both signs, or between `least` and `most`.
  TensorView fill(DType dtype, const std::vector<int64_t>& shape, float most) {
    return fill(dtype, shape, -most, most);
  }
  TensorView fill(DType dtype, const std::vector<int64_t>& shape, float least, float most) {
    int64_t elements = 1;
    for (const int64_t size : shape) elements *= size;
    std::vector<std::byte> values(elements * size_of(dtype));
    for (int64_t i = 0; i < elements; ++i)
      store_from_float(values.data(), dtype, i,
                       least + (most - least) * static_cast<float>(uniform(numbers_, i)));
    numbers_ = mix(numbers_, "next");
    return on_device(values.data(), dtype, shape);
  }
  /// For products of a deviation near 1, from numbers of one.
  TensorView scales_of(int64_t count_of_rows, int64_t depth) {
    const float usual = 3 / (largest_code * std::sqrt(static_cast<float>(depth)));
    return fill(DType::fp32, {count_of_rows}, 0.5f * usual, 1.5f * usual);
  }

  Context& context_;
  std::unique_ptr<device::Stream> stream_;
  uint64_t numbers_ = mix(0, "experts of fp8 by fp8");
  std::vector<device::Buffer> buffers_;
  std::vector<Expert> experts_;
  TensorView x_, chosen_, weights_;
  device::Buffer y_{context_.device, device::Memory::device};
};

void check(Context& context) {
  Check problem(context);
  const std::vector<float> in_fp8 = problem.run();
  std::unique_ptr<GroupedMatmul> library = std::exchange(context.grouped_matmul, nullptr);
  const std::vector<float> expected = problem.run();
  context.grouped_matmul = std::move(library);
  double squares = 0, errors = 0, greatest = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    const double error = std::abs(double{in_fp8[i]} - expected[i]);
    squares += double{expected[i]} * expected[i];
    errors += error * error;
    greatest = error <= greatest ? greatest : error;  // NaN stays
  }
  const double deviation = std::sqrt(squares / static_cast<double>(expected.size()));
  const double relative = std::sqrt(errors / squares);
  // Rounding to fp8 moves a number by up to 2⁻⁴ of it, by 2.6 % on average (root mean square): once x, and
  // once the activation. One element is off by ten deviations of that at most.
  constexpr double most_of_all = 0.08, most_of_one = 0.5;
  if (!(relative <= most_of_all) || !(greatest <= most_of_one * deviation))
    fail<SystemError>(
        "results differ by {:.3g} of their size, and one by {:.3g}; {} and {} are "
        "allowed",
        relative, greatest / deviation, most_of_all, most_of_one);
}

}  // namespace

void check_fp8_experts(Context& context) {
  try {
    check(context);
  } catch (const Error& error) {
    fail<SystemError>(
        "experts of fp8 by fp8 ({}) do not pass their check on this GPU ({}): {}; {}=0 in the "
        "environment multiplies rows of bf16",
        context.grouped_matmul ? context.grouped_matmul->name() : "a library",
        context.device.info().name, error.what(), fp8_experts_switch);
  }
}

}  // namespace pecia::kernels::cuda
