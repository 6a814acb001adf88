// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/attention/attention_wgmma_check.hpp"

#include <array>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "kernels/cuda/cuda.hpp"
#include "lib/base/core/random.hpp"

namespace pecia::kernels::cuda {
namespace {

constexpr int64_t num_heads = 4, num_kv_heads = 2;
constexpr int64_t num_rows = 70;  // two tiles of packed rows, the last with few
constexpr int64_t num_keys = 290;

/// A result on the host: out, then lse.
using Result = std::vector<float>;

class Check {
 public:
  Check(Context& context, DType dtype, int64_t head_dim)
      : context_(context),
        stream_(context.device.make_stream()),
        dtype_(dtype),
        head_dim_(head_dim),
        numbers_(key_of("attention by wgmma", dtype, head_dim)) {
    // Rows of two chunks of a ring, and one before all keys.
    for (int64_t row = 0; row < num_rows; ++row)
      positions_.push_back(row == 0 ? 0 : row < 40 ? 100 + row : 500 + row);
    const int64_t head_stride = num_keys * head_dim;
    for (const auto& [first, count, position, stride] :
         std::vector<std::array<int64_t, 4>>{{0, 131, 1, 1}, {131, 76, 510, 2}, {207, 83, 132, 3}})
      runs_.push_back({first * head_dim, head_stride, count, position, stride});
    items_ = {{0, num_rows, 0, static_cast<int64_t>(runs_.size())}};
    const bool scaled = dtype == DType::fp8;
    fill(q_, DType::fp32, num_rows * num_heads * head_dim, -3, 3);
    for (auto* const values : {&k_, &v_})
      fill(*values, dtype, num_kv_heads * num_keys * head_dim, -1, 1);
    for (auto* const scales : {&k_scales_, &v_scales_})
      fill(*scales, DType::fp32, scaled ? num_kv_heads * num_keys : 0, 0.5f, 1);
  }

  Result attend(Window window) {
    const TensorView out = out_.tensor(DType::fp32, {num_rows, num_heads, head_dim_});
    const TensorView lse = lse_.tensor(DType::fp32, {num_rows, num_heads});
    attention({.q = {q_.data(), DType::fp32, {num_rows, num_heads, head_dim_}},
               .query_positions = positions_,
               .items = items_,
               .runs = runs_,
               .keys = {k_.data(), v_.data(), k_scales_.as<float>(), v_scales_.as<float>()},
               .kv_dtype = dtype_,
               .num_kv_heads = num_kv_heads,
               .scale = 1 / std::sqrt(static_cast<float>(head_dim_)),
               .window = window,
               .out = out,
               .lse = lse},
              context_, *stream_);
    Result result(out.elements() + lse.elements());
    context_.device.copy(result.data(), out.data(), out.elements() * size_of(DType::fp32),
                         *stream_);
    context_.device.copy(result.data() + out.elements(), lse.data(),
                         lse.elements() * size_of(DType::fp32), *stream_);
    stream_->synchronize();
    return result;
  }

 private:
  static uint64_t key_of(std::string_view words, DType dtype, int64_t head_dim) {
    return mix(static_cast<uint64_t>(head_dim) * 16 + static_cast<uint64_t>(dtype), words);
  }
  void fill(device::Buffer& buffer, DType dtype, int64_t count, float least, float most) {
    std::vector<std::byte> values(count * size_of(dtype));
    for (int64_t i = 0; i < count; ++i)
      store_from_float(values.data(), dtype, i,
                       least + (most - least) * static_cast<float>(uniform(numbers_, i)));
    numbers_ = mix(numbers_, "next");
    buffer.reserve(std::max<int64_t>(1, std::ssize(values)));
    context_.device.copy(buffer.data(), values.data(), std::ssize(values), *stream_);
    stream_->synchronize();
  }
  device::Buffer on_device() const { return {context_.device, device::Memory::device}; }

  Context& context_;
  std::unique_ptr<device::Stream> stream_;
  DType dtype_;
  int64_t head_dim_;
  uint64_t numbers_;
  std::vector<int64_t> positions_;
  std::vector<KeyRun> runs_;
  std::vector<AttentionItem> items_;
  device::Buffer q_ = on_device(), k_ = on_device(), v_ = on_device();
  device::Buffer k_scales_ = on_device(), v_scales_ = on_device();
  device::Buffer out_ = on_device(), lse_ = on_device();
};

/// NaN is as far as can be; two infinities of one sign are equal.
double greatest_difference(const Result& a, const Result& b) {
  double greatest = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i] == b[i]) continue;
    const double difference = std::abs(double{a[i]} - b[i]);
    greatest = std::isnan(difference) ? std::numeric_limits<double>::infinity()
                                      : std::max(greatest, difference);
  }
  return greatest;
}

void check(Context& context, DType dtype, int64_t head_dim) {
  Check problem(context, dtype, head_dim);
  // Values are at most 1. A weight is rounded relative to its greatest score so far, which differs
  // between the kernels, by half a unit u each. Kernels in fp32 do not round queries, which shifts
  // scores of up to 4 by as much of them, and weights by that. fp16 has u of 2⁻¹⁰, bf16 2⁻⁷.
  const double tolerance = 5 * (dtype == DType::fp16 ? 0x1p-11 : 0x1p-8);
  for (const Window window : {Window(), Window(130), Window::chunks_of(130)}) {
    const Result by_wgmma = problem.attend(window);
    const AttendByWgmma attend = std::exchange(context.wgmma.attend, nullptr);
    const Result expected = problem.attend(window);
    context.wgmma.attend = attend;
    if (const double difference = greatest_difference(by_wgmma, expected); difference > tolerance)
      fail<SystemError>("heads of {} and keys of {} differ by {:.3g}, more than {:.3g}, {} {}",
                        head_dim, name_of(dtype), difference, tolerance,
                        window.chunked() ? "chunks of" : "window", window.tokens);
  }
}

}  // namespace

void check_wgmma_attention(Context& context) {
  try {
    for (const DType dtype : {DType::bf16, DType::fp16, DType::fp8})
      for (const int64_t head_dim : {64, 80, 96, 128, 256})
        if (wgmma_attends(dtype, head_dim)) check(context, dtype, head_dim);
  } catch (const Error& error) {
    fail<SystemError>(
        "attention_wgmma_kernel does not pass its check on this GPU ({}): {}; {}=0 in the "
        "environment takes the other kernels of attention",
        context.device.info().name, error.what(), wgmma_switch);
  }
}

}  // namespace pecia::kernels::cuda
