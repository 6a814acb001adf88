// SPDX-License-Identifier: Apache-2.0
#include "tests/kernels/tensors.hpp"

#include <map>
#include <numeric>

#include "kernels/cpu/cpu.hpp"
#include "kernels/cpu/products/amx_kernel.hpp"

namespace pecia::test {
namespace {

constexpr float sentinel = -80.0f;  // which every type holds

int64_t product(const std::vector<int64_t>& shape, size_t first) {
  return std::accumulate(shape.begin() + first, shape.end(), int64_t{1}, std::multiplies<>());
}

/// random_floats(count, seed), kept: the same for every backend and option, they take longer than some
/// ops. The first numbers of a seed do not depend on their count.
std::vector<float> numbers_of(uint64_t seed, int64_t count) {
  static std::map<uint64_t, std::vector<float>> known;
  std::vector<float>& numbers = known[seed];
  if (std::ssize(numbers) < count) numbers = random_floats(count, seed);
  return {numbers.begin(), numbers.begin() + count};
}

}  // namespace

Tensor::Tensor(std::vector<int64_t> shape, DType dtype, const std::vector<float>& values,
               int64_t gap)
    : shape_(std::move(shape)), dtype_(dtype), gap_(gap) {
  PECIA_CHECK(static_cast<int64_t>(values.size()) == product(shape_, 0), "{} values",
              values.size());
  std::vector<float> spaced;
  for (int64_t row = 0; row < shape_[0]; ++row) {
    const auto begin = values.begin() + row * row_elements();
    spaced.insert(spaced.end(), begin, begin + row_elements());
    spaced.insert(spaced.end(), gap_, sentinel);
  }
  bytes_ = stored_as(dtype_, spaced);
}

Tensor Tensor::random(std::vector<int64_t> shape, DType dtype, uint64_t seed, int64_t gap) {
  const int64_t count = product(shape, 0);
  return Tensor(std::move(shape), dtype, numbers_of(seed, count), gap);
}

Tensor Tensor::filled(std::vector<int64_t> shape, float value, int64_t gap) {
  const int64_t count = product(shape, 0);
  return Tensor(std::move(shape), DType::fp32, std::vector<float>(count, value), gap);
}

int64_t Tensor::row_elements() const {
  return product(shape_, 1);
}

TensorView Tensor::view() {
  if (gap_ > 0 && shape_.size() == 2)
    return TensorView(bytes_.data(), dtype_, {shape_[0], shape_[1] + gap_})
        .slice_columns(0, shape_[1]);
  switch (shape_.size()) {
    case 1:
      return {bytes_.data(), dtype_, {shape_[0]}};
    case 2:
      return {bytes_.data(), dtype_, {shape_[0], shape_[1]}};
    case 3:
      return {bytes_.data(), dtype_, {shape_[0], shape_[1], shape_[2]}};
    default:
      return {bytes_.data(), dtype_, {shape_[0], shape_[1], shape_[2], shape_[3]}};
  }
}

std::vector<float> Tensor::values() const {
  std::vector<float> values;
  for (int64_t row = 0; row < shape_[0]; ++row)
    for (int64_t i = 0; i < row_elements(); ++i)
      values.push_back(load_as_float(bytes_.data(), dtype_, row * (row_elements() + gap_) + i));
  return values;
}

bool Tensor::gaps_intact() const {
  for (int64_t row = 0; row < shape_[0]; ++row)
    for (int64_t i = row_elements(); i < row_elements() + gap_; ++i)
      if (load_as_float(bytes_.data(), dtype_, row * (row_elements() + gap_) + i) != sentinel)
        return false;
  return true;
}

Device make_host_backend(const std::string& name) {
  constexpr double of_strips = 1.27 / 128;  // strip.hpp
  if (name == "reference") return {kernels::make_reference_backend(), device::Stream(1)};
  if (name == "cpu_bf16")
    return {kernels::make_cpu_backend(kernels::MatmulKind::bf16), device::Stream(2), true,
            of_strips};
  if (name == "cpu_amx")
    return {kernels::make_cpu_backend(kernels::MatmulKind::amx), device::Stream(2), true,
            of_strips};
  if (name == "cpu_amx_twin")
    return {
        kernels::cpu::make_backend({&kernels::cpu::twin_kernel(), &kernels::cpu::twin_kernel()}),
        device::Stream(2), true, of_strips};
  return {kernels::make_cpu_backend(), device::Stream(name == "cpu" ? 1 : 3)};
}

}  // namespace pecia::test
